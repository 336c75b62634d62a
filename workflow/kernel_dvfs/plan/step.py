"""Which captured step the configuration names: `workload: step:train.py:make_step`, or the record of one. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_dvfs_clocks.errors import InputError

MODEL = "model"
_PREFIX = "step:"
_ALLOWED = (
    "allowed: model, a model by name, step:FILE.py:FUNCTION, step:FILE.json, or {step: either, name: FOLDER, code: "
    "FILE.py:FUNCTION of a record}"
)


@dataclass(frozen=True, slots=True)
class StepSource:
    """A step as the configuration names it."""

    file: str  # of the function, or the record of a capture
    function: str  # "": the file is a record
    name: str  # of the results folder
    code: str  # FILE.py:FUNCTION, which a real GPU runs; "": a record whose code is not named

    @property
    def is_recorded(self) -> bool:
        """It has been captured already: the file is the record."""
        return not self.function

    @property
    def called(self) -> str:
        """As the configuration has it."""
        return self.file if self.is_recorded else f"{self.file}:{self.function}"


def step_source(value: Any) -> StepSource | None:
    """Return the step that the key `workload` names, None where it says `model`. Raises InputError where it says
    neither, or names no file that is there."""
    if value == MODEL:
        return None
    own_name, text, code = None, value, ""
    if isinstance(value, dict):
        own_name, text, code = value.get("name"), f"{_PREFIX}{value.get('step', '')}", value.get("code", "")
    if not isinstance(text, str) or not text.startswith(_PREFIX):
        raise InputError(f"workload = {value!r} is not possible; {_ALLOWED}")
    what = text.removeprefix(_PREFIX).removeprefix(_PREFIX)
    if what.endswith(".json"):
        file, function = what, ""
        if code:
            _function_of(code, text)
    elif code:
        raise InputError(f"workload = {text!r} is the code already; leave `code` out, or name a record")
    else:
        file, function = _function_of(what, text)
        code = what
    if not Path(file).is_file():
        raise InputError(f"workload = {text!r}: {file}: no such file")
    return StepSource(file, function, _folder(str(own_name)) if own_name else _name(file, function), code)


def _function_of(code: str, text: str) -> tuple[str, str]:
    """Return (file, function) of FILE.py:FUNCTION. Raises InputError where it is none, or there is no such file."""
    file, _, function = code.rpartition(":")
    if not file.endswith(".py") or not function.isidentifier():
        raise InputError(f"workload = {text!r}: {code!r} names no function of a Python file and no record; {_ALLOWED}")
    if not Path(file).is_file():
        raise InputError(f"workload = {text!r}: {file}: no such file")
    return file, function


def _name(file: str, function: str) -> str:
    """Return `step-train-make-step`; a record that a study has made names that study's folder."""
    path = Path(file)
    if not function and path.name.startswith("step") and path.parent.name.startswith("step-"):
        return path.parent.name
    words = [path.stem, *([function] if function else [])]
    return _folder("-".join(words))


def _folder(words: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")
    return name if name.startswith("step-") else f"step-{name}"
