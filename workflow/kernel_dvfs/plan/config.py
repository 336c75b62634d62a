"""A configuration: read, checked against its schema, and what null stands for in it.

Unknown keys, wrong types and impossible values are one line each, naming what is allowed. What only a GPU or a model
can tell is checked by `study`.
"""

import json
import math
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import ValidationError

from kernel_dvfs.strict_schema import StrictValidator
from kernel_dvfs_clocks.errors import InputError, meant
from kernel_dvfs_clocks.files import check_size, parse_json, parse_shipped_yaml, parse_yaml

# values inside these are names and paths, never numbers
_TEXT = ("gpu", "workload")
_LONGEST = 200  # characters of a value in a message
# what null stands for. At auto alone nothing is compared with the baseline, and a first look takes minutes
_USUALLY = {"auto_repeats": 4, "windows": 1, "max_windows": 1}
_AT_AUTO_ALONE = {"auto_repeats": 1, "windows": 2, "max_windows": 6}
# what a look of some minutes overrides: short windows (how short, plan.study says), each once
_IN_MINUTES: dict[str, Any] = {"auto_repeats": 1, "windows": 1, "max_windows": 1, "window_s": 2, "warmup_s": 0.1}
_WARMUP_S = {"simulated": 25, "nvml": 2}
_WEIGHTS = {"simulated": "counts", "nvml": "counts", "table": "raw"}


def load(path: str | Path) -> dict:
    """Return the configuration in a file, YAML or JSON, unchecked. Raises InputError."""
    try:
        text = Path(path).read_text("utf-8")
        content = parse_json(text) if _is_json(text) else parse_yaml(text)
    except OSError as error:
        raise InputError(f"configuration {path}: {error}; name one with --config") from None
    except ValueError as error:
        raise InputError(f"configuration {path}: {error}; mend it") from None
    if not isinstance(content, dict):
        raise InputError(f"configuration {path}: not a mapping of keys")
    return content


def _is_json(text: str) -> bool:
    """Return whether a text is JSON, whatever the file is called: Snakemake asks the same."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def check_files(paths: Iterable[str | Path]) -> None:
    """Raise InputError for a file of those that Snakemake has read in which a name appears twice: it takes the last
    without a word."""
    for path in paths:
        load(path)


def resolved(config: dict) -> dict:
    """Return the configuration with what null stands for in `auto_repeats`, `windows` and `max_windows`, and with what
    `minutes` overrides."""
    if config["minutes"] is not None:
        return config | _IN_MINUTES
    is_real = isinstance(config["gpu"], str) and config["gpu"].partition(":")[0] == "nvml"
    meant = _AT_AUTO_ALONE if is_real and config["clocks"] == "auto-only" else _USUALLY
    return config | {key: value for key, value in meant.items() if config[key] is None}


def warmup_s(config: dict, kind: str) -> float:
    """Return the warm-up of a kernel at its clocks, s, on a kind of GPU."""
    return config["warmup_s"] if config["warmup_s"] is not None else _WARMUP_S.get(kind, 0)


def default_weights(kind: str) -> str:
    """Return how kernels weigh in the totals where the configuration does not say."""
    return _WEIGHTS[kind]


def check(config: dict, schema_path: str) -> None:
    """Give text from the command line its type, in place; raise InputError for the first thing wrong in `config`."""
    try:
        check_size(config)  # Snakemake has read it
        for key, value in config.items():
            if key not in _TEXT:
                config[key] = _typed(value)
        check_size(config)
    except ValueError as error:
        raise InputError(f"config: {error}") from None
    native = config.get("native")
    if isinstance(native, dict):
        # YAML reads a bare on or off as a boolean
        for key, value in native.items():
            if isinstance(value, bool):
                native[key] = "on" if value else "off"
    try:
        _refuse_what_no_key_takes(config)
    except RecursionError:
        raise InputError("config: nested too deeply, or in itself; write each value out") from None
    errors = sorted(_validator(str(schema_path)).iter_errors(config), key=lambda error: list(map(str, error.path)))
    if errors:
        raise InputError(f"config: {_line(errors[0])}")


@cache
def _validator(schema_path: str) -> Any:
    return StrictValidator(parse_shipped_yaml(Path(schema_path).read_text("utf-8")))


def _refuse_what_no_key_takes(value: object, key: str = "") -> None:
    """YAML knows .nan and .inf, dates, names that are no text, and text that a terminal or a path cannot show."""
    if isinstance(value, dict):
        for name, child in value.items():
            if not isinstance(name, str | int):
                raise InputError(f"config: {key or 'top level'}: the name {name!r} is not possible; allowed: text")
            _refuse_what_no_key_takes(child, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for number, child in enumerate(value):
            _refuse_what_no_key_takes(child, f"{key}.{number}")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"config: {key} = {value} is not possible; allowed: a finite number")
    elif isinstance(value, str):
        if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in value):
            raise InputError(f"config: {key} = {value!r} is not possible; allowed: text without control characters")
    elif value is not None and not isinstance(value, int):
        raise InputError(
            f"config: {key} = {_short(str(value))} is not possible; allowed: text, numbers, lists and mappings"
        )


def _typed(value: object) -> object:
    """Return text as YAML would read it: `--config 'grid={auto: true}'` hands over its inner values as text."""
    if isinstance(value, dict):
        return {key: _typed(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_typed(child) for child in value]
    if isinstance(value, str):
        try:
            return parse_yaml(value)
        except ValueError:
            return value
    return value


# what people call a key, where that is not near enough to its name
_CALLED = {
    **dict.fromkeys(("slack", "slack_percent", "slowdown", "slowdown_percent", "limit"), "limits_percent"),
    **dict.fromkeys(("device", "card"), "gpu"),
    **dict.fromkeys(("batch_size", "bs"), "batch"),
    **dict.fromkeys(("tp", "degree"), "tensor_parallel"),
}


def _line(error: ValidationError) -> str:
    key = ".".join(map(str, error.absolute_path))
    if error.validator == "additionalProperties":
        known = list(error.schema["properties"])
        unknown = next(name for name in error.instance if name not in known)
        if not isinstance(unknown, str):
            return f"{key + ': ' if key else ''}unknown key {unknown!r}; allowed: {', '.join(known)}"
        where = f"{key}.{unknown}" if key else unknown
        near = meant(_CALLED.get(unknown, unknown), known)
        return f"unknown key '{where}'{near}; allowed: {', '.join(known)}"
    if error.validator == "required":
        absent = next(name for name in error.schema["required"] if name not in error.instance)
        return f"{key + ': ' if key else ''}key '{absent}' is missing; the shipped config.yaml has all of them"
    allowed = error.schema.get("description") or _short(error.message)
    return f"{key} = {_short(repr(error.instance))} is not possible; allowed: {allowed}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
