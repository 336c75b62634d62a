"""What the library takes from the project's top level, so that it works without a clone: the configuration as shipped,
its schema, and the sources of the native layer. Links here, files in the wheel."""

from pathlib import Path

_HERE = Path(__file__).parent
CONFIG = _HERE / "config.yaml"
SCHEMA = _HERE / "config.schema.yaml"
NATIVE = _HERE / "native"
