"""What the library takes from the project's top level, so that it works without a clone: the configuration as shipped,
its schema, the sources of the native layer, a measured step, the workflow: links here, files in the wheel; and what was
inferred of the default board."""

from pathlib import Path

_HERE = Path(__file__).parent
CONFIG = _HERE / "config.yaml"
SCHEMA = _HERE / "config.schema.yaml"
NATIVE = _HERE / "native"
# what the strict saving may be on the default board, and which claims it was inferred by (report/inference.py)
POSTERIOR_BAND = _HERE / "posterior_band.csv"
POSTERIOR_CLAIMS = _HERE / "posterior_claims.csv"
# tables of a captured step that was measured on a real GPU
STEP = _HERE / "step"
# where Snakefile, config.yaml, workflow/rules and profiles lie: the project's top level, or here, as installed
_TOP = _HERE.parents[2]
WORKFLOW = _TOP if (_TOP / "workflow" / "rules").is_dir() else _HERE


def config_or(path: str) -> str:
    """Return a configuration's path: the user's, or the shipped one where nobody named any and none lies here ("")."""
    return path or ("config.yaml" if Path("config.yaml").is_file() else str(CONFIG))


def native_or(path: str) -> str:
    """Return the native layer's sources: the user's folder, or those that were shipped where nobody named any ("")."""
    return path or ("native" if Path("native/CMakeLists.txt").is_file() else str(NATIVE))
