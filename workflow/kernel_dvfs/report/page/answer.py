"""The answer of a study: energy saved and time changed by the strict schedule, as a chart, and what a reader must know
before trusting it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_dvfs.layout import STRICT
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.report.measured_tables import DIFFERS
from kernel_dvfs.report.page.provenance import Tally
from kernel_dvfs.report.page.tables import Rows, Table, duration, energy_in_words, number, signed
from kernel_dvfs.report.results import Results
from kernel_dvfs.report.words import ALL_TOGETHER, another_hour_pp, how_known
from kernel_dvfs.student import WITHIN_SESSION

# what a total is, by the weights that it is made with
_TOTALS = {
    "counts": "one training iteration takes {time} and {energy}",
    "step": "the kernels of one step, each measured alone, take {time} and {energy} together",
    "raw": "all kernels, each launched once, take {time} and {energy}",
}
_TICKS = 6  # of a chart's axis
# of records, what a reader must know
_VERDICTS = {
    "disturbed": "another process, a temperature out of its band or a changed power limit: not used for choosing",
    "counter": "the energy counter froze: not used for choosing",
    "unsupported": "the GPU does not know the clock: not used for choosing",
    "unstable": "the energy kept scattering: used, with its scatter",
    "not_reached": "the GPU ran another clock than asked for: used as what the request gives",
    "throttled": "a power cap or heat held the core below the request: used as what the request gives",
}


@dataclass(frozen=True, slots=True)
class Change:
    """A change against auto, in percent, negative = less. None: not known."""

    claimed: float | None  # by the data that chose
    validated: float | None = None  # by measuring again
    low: float | None = None  # of the 95 % interval of that
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Band:
    """Changes of energy, percent, that the model has over what nobody has measured, without noise."""

    low: float
    high: float
    default: float | None  # at the defaults


@dataclass(frozen=True, slots=True)
class Answer:
    """What the strict schedule gives."""

    energy: Change
    time: Change
    verdict: str | None  # of the validated time on its limit
    repeats: str | None  # of the validation
    interval: str | None  # what its intervals are over
    repeats_to_decide: str | None  # where the verdict is ambiguous
    slack_percent: float | None  # the limit
    baseline: str | None  # what the same costs at auto clocks, in words
    status: str | None  # of the schedule
    how: str  # the changes to believe are known, as words.how_known has it
    band: Band | None = None
    another_hour_points: float | None = None  # of energy, that another hour of measuring may add at most


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a chart: positions in percent of its width, None where there is no value."""

    label: str
    claimed: float | None
    validated: float | None
    low: float | None  # of the interval
    width: float | None  # of the interval
    said: str  # the same in words


@dataclass(frozen=True, slots=True)
class Chart:
    """Claimed and validated values with their intervals, as positions on one axis."""

    ticks: list[tuple[float, str]]  # (position in percent of the width, label)
    rows: list[Row]
    how: str  # what the values measured again are called; "": there are none


@dataclass(frozen=True, slots=True)
class Caution:
    """What a reader must know before trusting a page."""

    grave: bool
    title: str
    text: str  # one sentence


# --- the answer -------------------------------------------------------------------------------------------------------


def answer(results: Results, validation: Rows | None, headline_band: Rows | None = None) -> Answer | None:
    """validation, headline_band: rows of these tables as text, or None. None where the strict schedule is infeasible:
    it has no totals.

    Raises InputError where there is no strict schedule.
    """
    schedule = results.schedule(STRICT)
    if schedule.get("time_change_percent") is None:
        return None
    found = {row["quantity"]: row for row in validation or ()}
    energy, time = (_change(schedule, quantity, found.get(quantity)) for quantity in ("energy", "time"))
    about: Mapping[str, str] = found.get("time", {})
    weights = schedule.get("weights", "")
    totals = _TOTALS.get("step" if weights == "counts" and "step" in results.workload else weights)
    return Answer(
        energy,
        time,
        about.get("verdict") or None,
        about.get("repeats"),
        about.get("interval") or None,
        about.get("repeats_to_decide") or None,
        schedule.get("slack_percent"),
        totals
        and totals.format(
            time=duration(schedule["baseline_time"]), energy=energy_in_words(schedule["baseline_energy"])
        ),
        schedule.get("status"),
        how_known(results.gpu, energy.validated is not None),
        _band(headline_band or ()),
        another_hour_pp(schedule),
    )


def _band(rows: Rows | tuple[()]) -> Band | None:
    """Of clocks per kernel, over all that nobody has measured together."""
    for row in rows:
        if (row.get("level"), row.get("varied")) == ("kernel", ALL_TOGETHER):
            low, high, default = (
                number(row.get(f"{which}_energy_change_percent", "")) for which in ("low", "high", "default")
            )
            return None if low is None or high is None else Band(low, high, default)
    return None


def _change(schedule: dict, quantity: str, row: Mapping[str, str] | None) -> Change:
    measured = [float(row[f"fresh_{bound}_percent"]) for bound in ("change", "low", "high")] if row else []
    return Change(schedule[f"{quantity}_change_percent"], *measured)


# --- its chart --------------------------------------------------------------------------------------------------------


def chart(changes: Sequence[tuple[str, Change]], how: str = "validated") -> Chart | None:
    """The chart of labelled changes; None if there is none with a value. how: the word for what was measured again."""
    shown = [each for _, change in changes for each in (change.claimed, change.validated, change.low, change.high)]
    values = [value for value in shown if value is not None]
    if not values:
        return None
    ticks = _ticks(min(0.0, *values), max(0.0, *values))
    first, span = ticks[0], ticks[-1] - ticks[0]

    def position(value: float) -> float:
        return round(100 * (value - first) / span, 3)

    def place(value: float | None) -> float | None:
        return None if value is None else position(value)

    rows = []
    for label, change in changes:
        low, high = place(change.low), place(change.high)
        width = None if low is None or high is None else round(high - low, 3)
        rows.append(Row(label, place(change.claimed), place(change.validated), low, width, _said(change, how)))
    again = how if any(row.validated is not None for row in rows) else ""
    return Chart([(position(tick), signed(tick, _digits(ticks))) for tick in ticks], rows, again)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers about [low, high], 0 among them."""
    rough = max(high - low, 1e-3) / _TICKS
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [step * number for number in range(math.floor(low / step - 1e-9), math.ceil(high / step + 1e-9) + 1)]


def _digits(ticks: Sequence[float]) -> int:
    return max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))


def _said(change: Change, how: str) -> str:
    """The same in words, for those who cannot see the chart."""
    text = [] if change.claimed is None else [f"claimed {signed(change.claimed)} %"]
    if change.validated is not None and change.low is not None and change.high is not None:
        text.append(f"{how} {signed(change.validated)} % ({signed(change.low)} to {signed(change.high)} %)")
    return ", ".join(text)


# --- what to know before trusting it ----------------------------------------------------------------------------------


def cautions(
    gpu: Mapping[str, Any], answer: Answer | None, tally: Tally, kernels: Table | None, locking: Rows | None = None
) -> list[Caution]:
    """All cautions, the gravest first. gpu: as a setup or a profile has it. kernels: the table, None where not made;
    locking: rows of that table as text, likewise."""
    found, kind = [], gpu["kind"]
    if gpu.get("forecast"):
        found.append(
            Caution(
                True,
                "Forecast",
                "Nothing on this page was measured at the chosen clocks. At auto each kernel of the step has the "
                "values of its capture or of a study. How it responds to clocks comes from the model of a simulated "
                "GPU, by its FLOP and bytes. If the capture knows neither, the kernel is taken as bound by the core. "
                + (
                    "Nobody has measured the power of its kernels either: joules and watts are the model's, and may be "
                    "far off (a small conv net: 2.2 J forecast, 3.6 J measured on an H200). A forecast from the "
                    "step-measured.json of an auto-only study is better. "
                    if gpu.get("power_modelled")
                    else ""
                )
                + "Measure the step where you may set clocks: docs/your-step.md of the project.",
            )
        )
    elif kind == "simulated":
        found.append(
            Caution(
                True,
                "Simulated GPU",
                "Every number on this page comes from a model of the GPU, not from a board. It fits published "
                "measurements; what it cannot say is in docs/simulated-gpu.md of the project.",
            )
        )
    found += _of_answer(answer, kind)
    found += _of_records(tally)
    found += _of_chosen(kernels)
    found += _of_headline(answer)
    found += _of_locking(locking or ())
    return sorted(found, key=lambda each: not each.grave)


def _of_locking(rows: Iterable[Mapping[str, str]]) -> list[Caution]:
    """Where a lock alone changes what a kernel costs, a caution that names the largest difference of each way."""
    differing = [row for row in rows if row.get("verdict") == DIFFERS]
    told = []
    for way in dict.fromkeys(row["way"] for row in differing):
        own = [
            (abs(value), quantity, value, row["id"])
            for row in differing
            if row["way"] == way
            for quantity in ("time", "energy")
            if (value := number(row[f"{quantity}_change_percent"])) is not None
        ]
        _, quantity, value, name = max(own)
        told.append(f"{way} {signed(value)} % {quantity} ({name})")
    if not told:
        return []
    return [
        Caution(
            False,
            "A lock changes something by itself",
            f"Locked at the highest clocks, this GPU does not run as at auto: {'; '.join(told)}. Every "
            "saving on this page includes this difference; the table Locking has all that was measured.",
        )
    ]


def _of_answer(answer: Answer | None, kind: str) -> list[Caution]:
    if answer is None:
        return []
    if answer.energy.validated is None or answer.time.validated is None:
        why = "a table cannot be measured again" if kind == "table" else "it has not been measured again"
        return [
            Caution(
                True,
                "Claimed only",
                f"The saving is claimed, and {why}. Claimed savings are optimistic: the same noisy data selected the "
                "clocks.",
            )
        ]
    found = _of_interval(answer)
    limit = answer.slack_percent or 0
    if answer.verdict == "over":
        text = (
            f"Measured again, the time is {signed(answer.time.validated)} % where {signed(limit)} % was allowed; "
            "the whole 95 % interval is above the limit."
        )
        return [Caution(True, "Over its time limit", text), *found]
    if answer.verdict == "ambiguous":
        more = f" About {answer.repeats_to_decide} repeats would decide." if answer.repeats_to_decide else ""
        text = f"The 95 % interval of the time contains the limit of {signed(limit)} %.{more}"
        return [Caution(False, "Time limit undecided", text), *found]
    return found


def _of_interval(answer: Answer) -> list[Caution]:
    if answer.interval != WITHIN_SESSION:
        return []
    text = (
        "All repeats were measured in one session. What changes from one session to the next is not in the 95 % "
        "intervals, and can be several times as much."
    )
    return [Caution(False, "Intervals within one session", text)]


def _of_records(tally: Tally) -> list[Caution]:
    verdicts = sum((group.verdicts for group in tally.groups), Counter[str]())
    points = sum(verdicts.values())
    found = [
        Caution(
            verdict in UNUSABLE, verdict.replace("_", " ").capitalize(), f"{count} of {points} measurements: {why}."
        )
        for verdict, why in _VERDICTS.items()
        if (count := verdicts.get(verdict))
    ]
    if tally.broken:
        names = ", ".join(path.name for path in tally.broken[:3]) + (" ..." if len(tally.broken) > 3 else "")
        text = (
            f"{len(tally.broken)} files cannot be read ({names}); kernel-dvfs measure records finds and deletes them."
        )
        found.append(Caution(True, "Broken records", text))
    if len(tally.setups) > 1:
        setups = ", ".join(tally.setups)
        text = f"The sweep's records come from {len(tally.setups)} setups ({setups}): settings were changed."
        found.append(Caution(True, "Mixed settings", text))
    return found


def _of_chosen(kernels: Table | None) -> list[Caution]:
    """Chosen pairs that are not what the GPU ran."""
    place = {column.name: index for index, column in enumerate(kernels.columns)} if kernels else {}
    if kernels is None or "verdict" not in place:
        return []
    count = sum(row[place["verdict"]].value not in ("ok", "") for row in kernels.rows)
    if not count:
        return []
    of = f"{count} of {len(kernels.rows)} kernels"
    text = f"{of} have a clock pair that the GPU did not run as requested; the table says what it ran."
    return [Caution(False, "Chosen, but not reached", text)]


def _of_headline(answer: Answer | None) -> list[Caution]:
    """How far the headline moves with what no measurement fixes."""
    if answer is None or answer.band is None:
        return []
    text = (
        f"Energy {signed(answer.band.low)} to {signed(answer.band.high)} % without noise, over what nobody has "
        "measured of this GPU: tensor-core energy, DRAM traffic of dense products, highest clock at auto. The map is "
        "under What the headline rests on."
    )
    return [Caution(False, "Rests on three unmeasured figures", text)]
