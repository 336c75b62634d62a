"""A schedule's answer in words: for the terminal, and for a page."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.layout import subject

_OBJECTIVES = {
    "waste": "least energy, {limit}",
    "edp": "the least energy-delay product",
    "energy": "the least energy, however long it takes",
}
_SCOPES = {"single": "one pair for all", "local": "each on its own", "global": "all together"}


def in_words(percent: float, quantity: str) -> str:
    """`7.23 % less energy`, `the same time` where it rounds to nothing."""
    text = f"{abs(percent):.2f}"
    if float(text) == 0:
        return f"the same {quantity}"
    return f"{text} % {'more' if percent > 0 else 'less'} {quantity}"


def asked(schedule: Mapping[str, Any]) -> str:
    """What a schedule was asked for."""
    slack = schedule["slack_percent"]
    limit = "no slower" if not slack else f"at most {slack:.3g} % slower" if slack > 0 else f"{-slack:.3g} % faster"
    return f"{_OBJECTIVES[schedule['objective']].format(limit=limit)}; {kinds(schedule)}, {_SCOPES[schedule['scope']]}"


def kinds(schedule: Mapping[str, Any]) -> str:
    """What clocks are chosen for."""
    return "passes" if schedule["granularity"] == "pass" else "kernels"


def whose(schedule: Mapping[str, Any]) -> str:
    """`simulated RTX 3080 Ti, gpt3-xl-b40-tp1`."""
    name = schedule["workload"].get("name", "")
    return ", ".join(filter(None, (subject(schedule["gpu"]), name)))


# what a choice is of, by the weights that it was made with
_OF = {"counts": "", "raw": " of all launched once", "equal-time": " of all with equal times at auto"}


def checked(schedule: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schedule itself. Raises InputError where it is none that says what it changes."""
    missing = [name for name in _NEEDED if not isinstance(schedule, Mapping) or name not in schedule]
    if missing:
        raise InputError(f"schedule: {', '.join(missing)} missing; make one with kernel-dvfs choose")
    wrong = [name for name, kind in _NEEDED.items() if not isinstance(schedule[name], kind)]
    if wrong or schedule["status"] != "optimal" or schedule["granularity"] not in ("kernel", "pass"):
        name = wrong[0] if wrong else "status" if schedule["status"] != "optimal" else "granularity"
        shown = str(schedule[name])[:60]
        raise InputError(
            f"schedule: {name} = {shown}: it holds no choice of kernels or passes; choose again, with more slack"
        )
    return schedule


_NEEDED: dict[str, Any] = {
    "status": str,
    "granularity": str,
    "scope": str,
    "objective": str,
    "slack_percent": (int, float, NoneType),
    "weights": str,
    "ties": str,
    "proof": str,
    "energy_change_percent": (int, float),
    "time_change_percent": (int, float),
    "gpu": dict,
    "workload": dict,
    "targets": dict,
}


def answer_of(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """The answer for other programs: changes against auto, percent, negative = less, claimed by the data that chose."""
    checked(schedule)
    kept = (
        "weights",
        "granularity",
        "scope",
        "objective",
        "slack_percent",
        "energy_change_percent",
        "time_change_percent",
    )
    return {
        "gpu": subject(schedule["gpu"]),
        "workload": schedule["workload"].get("name"),
        "simulated": schedule["gpu"]["kind"] == "simulated",
        **{name: schedule[name] for name in kept},
        "targets": len(schedule["targets"]),
    }


def answer_line(schedule: Mapping[str, Any]) -> str:
    """The answer in one line: what is claimed, and that it is a claim."""
    checked(schedule)
    energy, time = schedule["energy_change_percent"], schedule["time_change_percent"]
    is_forecast = schedule["gpu"].get("forecast")
    held = "forecast" if is_forecast else "claimed: optimistic, since the same noisy data selected the clocks"
    settings = {tuple(own.values()) for own in schedule["targets"].values()}
    pairs = "1 clock pair" if len(settings) == 1 else f"{len(settings)} clock pairs"
    return (
        f"{whose(schedule)}: {in_words(energy, 'energy')} and {in_words(time, 'time')}{_OF[schedule['weights']]}, "
        f"against auto ({held}); "
        f"{len(schedule['targets'])} {kinds(schedule)} at {pairs}; asked for: {asked(schedule)}"
    )
