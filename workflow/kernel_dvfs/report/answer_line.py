"""A schedule's answer in words: for the terminal, and for a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def answer_of(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """The answer for other programs: changes against auto, percent, negative = less, claimed by the data that chose."""
    kept = ("granularity", "scope", "objective", "slack_percent", "energy_change_percent", "time_change_percent")
    return {
        "gpu": subject(schedule["gpu"]),
        "workload": schedule["workload"].get("name"),
        "simulated": schedule["gpu"]["kind"] == "simulated",
        **{name: schedule[name] for name in kept},
        "targets": len(schedule["targets"]),
    }


def answer_line(schedule: Mapping[str, Any]) -> str:
    """The answer in one line: what is claimed, and that it is a claim."""
    energy, time = schedule["energy_change_percent"], schedule["time_change_percent"]
    is_forecast = schedule["gpu"].get("forecast")
    held = "forecast" if is_forecast else "claimed: optimistic, since the same noisy data selected the clocks"
    settings = {tuple(own.values()) for own in schedule["targets"].values()}
    pairs = "1 clock pair" if len(settings) == 1 else f"{len(settings)} clock pairs"
    return (
        f"{whose(schedule)}: {in_words(energy, 'energy')} and {in_words(time, 'time')}, against auto ({held}); "
        f"{len(schedule['targets'])} {kinds(schedule)} at {pairs}; asked for: {asked(schedule)}"
    )
