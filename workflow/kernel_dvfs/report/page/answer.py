"""The answer of a study: energy saved and time changed by the strict schedule, fresh where it was measured again."""

from collections import namedtuple

from kernel_dvfs.layout import STRICT
from kernel_dvfs.report.page.cells import plain, signed

Answer = namedtuple("Answer", "energy time verdict repeats repeats_to_decide slack_percent baseline status")
Answer.__doc__ = """energy, time: Change. verdict: of the fresh time on its limit, None without fresh repeats.
baseline: what the same costs at auto clocks, in words. status: of the schedule."""
Change = namedtuple("Change", "claimed fresh low high")
Change.__doc__ = "Percent of auto, negative = less; fresh, low, high (95 % interval) are None where not measured again."

# what a total is, by the weights that it is made with
_TOTALS = {
    "counts": "one training iteration takes {time} s and {energy} J",
    "raw": "all kernels, each launched once, take {time} s and {energy} J",
}


def answer(results, validation: list | None) -> Answer | None:
    """validation: rows of its table as text, or None. None where the strict schedule is infeasible: it has no totals.

    Raises InputError where there is no strict schedule.
    """
    schedule = results.schedule(STRICT)
    if schedule.get("time_change_percent") is None:
        return None
    found = {row["quantity"]: row for row in validation or ()}
    energy, time = (_change(schedule, quantity, found.get(quantity)) for quantity in ("energy", "time"))
    about = found.get("time", {})
    totals = _TOTALS.get(schedule.get("weights"))
    return Answer(
        energy,
        time,
        about.get("verdict") or None,
        about.get("repeats"),
        about.get("repeats_to_decide") or None,
        schedule.get("slack_percent"),
        totals and totals.format(time=plain(schedule["baseline_time"]), energy=plain(schedule["baseline_energy"])),
        schedule.get("status"),
    )


def _change(schedule: dict, quantity: str, row: dict | None) -> Change:
    fresh = (float(row[f"fresh_{bound}_percent"]) for bound in ("change", "low", "high")) if row else (None,) * 3
    return Change(schedule[f"{quantity}_change_percent"], *fresh)


def in_words(change: float, quantity: str) -> str:
    """`7.23 % less energy`, `the same time`."""
    text = signed(change)
    if text.strip("0.") == "":
        return f"the same {quantity}"
    return f"{text[1:]} % {'more' if change > 0 else 'less'} {quantity}"
