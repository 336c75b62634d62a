"""Whether a choice keeps its time limit: the bound that was shown, and whether measuring again contradicts it.

One function decides, and all words for it are here. Where a walk has shown a choice, the bound is the verdict: its data
did not choose the clocks. Measuring again needs far more repeats to show the same once more, so it is asked only for a
contradiction. A choice that no walk has shown rests on measuring again alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernel_dvfs.student import Change, of_sessions

# of a choice that a walk has shown
CONTRADICTS, AGREES = "contradicts", "does not contradict"
# of any other one
BREAKS, KEEPS, NOT_SHOWN = "breaks its limit", "keeps its limit", "not shown to keep its limit"
# those of a choice that takes longer than it may
MISSED = frozenset({CONTRADICTS, BREAKS})


def verdict(change: Change, limit_percent: float, is_walked: bool = False) -> str:
    """Return what measuring again says of a time limit: one of the words above.

    change: of the time, with its two-sided 95 % interval. is_walked: whether a walk has shown that the limit is kept.
    """
    if change.low > limit_percent:
        return CONTRADICTS if is_walked else BREAKS
    if is_walked:
        return AGREES
    return KEEPS if change.high <= limit_percent else NOT_SHOWN


def of_repeats(schedule: Mapping[str, Any], time_percent: Sequence[float]) -> str | None:
    """Return the verdict of repeats, each in a session of its own; None where there are fewer than two, or no limit.

    time_percent: change of the time against the baseline, one a repeat.
    """
    if len(time_percent) < 2 or schedule["slack_percent"] is None:
        return None
    return verdict(of_sessions(time_percent), schedule["slack_percent"], bool(schedule["walk"]))


def limit_in_words(schedule: Mapping[str, Any], judged: str | None = None) -> str:
    """Return what is known of a schedule's time limit, as a sentence without capital and stop; "" for nothing.

    judged: the verdict of measuring again; None or "": there is none.
    """
    walk = schedule.get("walk")
    # a forecast measures nothing, not even again
    again = " in simulation" if schedule.get("gpu", {}).get("forecast") else ""
    if walk and not walk["passed"]:
        return "all stay at auto, since no other choice was shown to keep the limit"
    if walk:
        return f"it is {_bound(walk)}" + (f"; measuring again{again} {judged} this" if judged else "")
    if not judged:
        return ""
    return f"measured again{again}, it {'is ' if judged == NOT_SHOWN else ''}{judged}"


def _bound(walk: Mapping[str, Any]) -> str:
    percent, confidence = round(walk["time_bound_percent"], 2), 100 - walk["over_percent"]
    # minus a bound below zero reads better as what is gained
    bound = f"at most {abs(percent):.2f} % slower" if percent >= 0 else f"at least {-percent:.2f} % faster"
    return f"{bound}, shown with {confidence:g} % confidence by data that did not choose it"
