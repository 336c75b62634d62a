"""Check a configuration: unknown keys, wrong types and impossible values are one line each, naming what is allowed.

Knows the schema's language, not what the keys are for; what only a GPU or a model can tell is checked by `study`.
"""

import math
from difflib import get_close_matches

import yaml
from jsonschema import Draft202012Validator, ValidationError

from kernel_dvfs.errors import InputError

# values inside these are names and paths, never numbers
_TEXT = ("gpu", "workload")


def check(config: dict, schema_path: str) -> None:
    """Give text from the command line its type, in place; raise InputError for the first thing wrong in `config`."""
    with open(schema_path, encoding="utf-8") as file:
        schema = yaml.safe_load(file)
    for key, value in config.items():
        if key not in _TEXT:
            config[key] = _typed(value)
    native = config.get("native")
    if isinstance(native, dict):
        # YAML reads a bare on or off as a boolean
        native.update({key: {True: "on", False: "off"}.get(value, value) for key, value in native.items()})
    _refuse_infinite(config)
    errors = sorted(Draft202012Validator(schema).iter_errors(config), key=lambda error: list(map(str, error.path)))
    if errors:
        raise InputError(f"config: {_line(errors[0])}")


def _refuse_infinite(value: object, key: str = "") -> None:
    """YAML knows .nan and .inf, no key does."""
    if isinstance(value, dict):
        for name, child in value.items():
            _refuse_infinite(child, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for number, child in enumerate(value):
            _refuse_infinite(child, f"{key}.{number}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"config: {key} = {value} is not possible; allowed: a finite number")


def _typed(value: object) -> object:
    """Text as YAML would read it: `--config 'grid={auto: true}'` hands over its inner values as text."""
    if isinstance(value, dict):
        return {key: _typed(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_typed(child) for child in value]
    if isinstance(value, str):
        try:
            return yaml.safe_load(value)
        except yaml.YAMLError:
            return value
    return value


def _line(error: ValidationError) -> str:
    key = ".".join(map(str, error.absolute_path))
    if error.validator == "additionalProperties":
        known = list(error.schema["properties"])
        unknown = next(name for name in error.instance if name not in known)
        close = get_close_matches(str(unknown), known, 1)
        hint = f" (did you mean '{close[0]}'?)" if close else ""
        where = f"{key}.{unknown}" if key else unknown
        return f"unknown key '{where}'{hint}; allowed: {', '.join(known)}"
    if error.validator == "required":
        return f"{key + ': ' if key else ''}{error.message}"
    allowed = error.schema.get("description") or error.message
    return f"{key} = {error.instance!r} is not possible; allowed: {allowed}"
