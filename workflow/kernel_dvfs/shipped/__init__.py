"""What the library takes from the project's top level, so that it works without a clone: the configuration as shipped,
its schema, the sources of the native layer, and a measured step. Links here, files in the wheel."""

from pathlib import Path

_HERE = Path(__file__).parent
CONFIG = _HERE / "config.yaml"
SCHEMA = _HERE / "config.schema.yaml"
NATIVE = _HERE / "native"
# tables of a captured step that was measured on a real GPU
STEP = _HERE / "step"


def config_or(path: str) -> str:
    """A configuration's path: the user's, or the shipped one where nobody named any and none lies here ("")."""
    return path or ("config.yaml" if Path("config.yaml").is_file() else str(CONFIG))


def native_or(path: str) -> str:
    """The native layer's sources: the user's folder, or those that were shipped where nobody named any ("")."""
    return path or ("native" if Path("native/CMakeLists.txt").is_file() else str(NATIVE))
