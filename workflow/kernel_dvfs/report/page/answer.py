"""The answer of a study: what the strict schedule saves, and those with more time, as a sentence, a table and a plane;
and what a reader must know before trusting it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_dvfs import limit_verdict
from kernel_dvfs.layout import STRICT
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.report.measured_tables import DIFFERS
from kernel_dvfs.report.page.provenance import Tally
from kernel_dvfs.report.page.tables import MINUS, Rows, Table, duration, energy_in_words, number, signed
from kernel_dvfs.report.results import Results
from kernel_dvfs.report.words import ALL_TOGETHER, MEASURED_AGAIN, another_minute_pp, how_known
from kernel_dvfs.student import WITHIN_SESSION

# what a total is, by the weights that it is made with
_TOTALS = {
    "counts": "one training iteration takes {time} and {energy}",
    "step": "the kernels of one step, each measured alone, take {time} and {energy} together",
    "raw": "all kernels, each launched once, take {time} and {energy}",
}
_TICKS = 6  # of a plane's axis
_LETTER_PX, _LINE_PX = 7.1, 15  # of a plane's labels: about the width of a letter, and the height of a line
_NOTHING = 0.05  # percent of energy that rounds to nothing
_PER_KERNEL = "kernel-global-waste-slack"
# titles of cautions whose text a mark has already
_MISSED, _NOT_SHOWN = "Time limit missed", "Time limit not shown to be kept"
# of records, what a reader must know
_VERDICTS = {
    "disturbed": "another process, a temperature out of its band or a changed power limit: not used for choosing",
    "counter": "the energy counter froze: not used for choosing",
    "not_free": "something outside had locked the core clock: not used for choosing",
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
    verdict: str | None  # of measuring again on the time limit, one of limit_verdict
    limit: str  # what is known of the time limit, in words; "": nothing
    repeats: str | None  # of measuring it again
    interval: str | None  # what its intervals are over
    slack_percent: float | None  # the limit
    baseline: str | None  # what the same costs at auto clocks, in words
    is_proven: bool  # whether no other choice is better by the data that chose; a walk's choice has its limit instead
    how: str  # the changes to believe are known, as words.how_known has it
    band: Band | None = None
    another_minute_points: float | None = None  # of energy, that another minute of measuring may add at most

    @property
    def is_missed(self) -> bool:
        """Whether it takes longer than it may, as measuring again says."""
        return self.verdict in limit_verdict.MISSED


@dataclass(frozen=True, slots=True)
class Tolerated:
    """A row of the first table: what an iteration may take, and what that gives."""

    limit: str  # "no longer", "0.6 % longer"
    note: str  # in small print, where there is more to say than that it was measured again
    energy: float  # percent of auto, negative = saved
    time: float
    how: str  # as words.how_known has it


@dataclass(frozen=True, slots=True)
class Label:
    """The label of a point, and where it stands."""

    text: str
    x: float
    y: float
    anchor: str  # "start" or "end"


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a plane, in its coordinates."""

    x: float
    y: float
    bar_x: tuple[float, float] | None  # ends of the 95 % intervals
    bar_y: tuple[float, float] | None
    kind: str  # "again": measured again; "claimed"; "paper"
    label: Label | None  # None: no place is free
    said: str  # the same in words


@dataclass(frozen=True, slots=True)
class Plane:
    """Change of energy over change of time, both in percent of auto: down and left is less."""

    x_ticks: list[tuple[float, str]]  # (place, label)
    y_ticks: list[tuple[float, str]]
    zero_x: float  # left of it no time is lost
    points: list[Point]
    line: str  # through the points measured again that belong together, as SVG has it; "": none

    width, height = 640, 360
    left, right, top, bottom = 62, 622, 22, 316  # of what is between the axes


@dataclass(frozen=True, slots=True)
class Caution:
    """What a reader must know before trusting a page."""

    grave: bool
    title: str
    text: str  # one sentence


# --- the answer -------------------------------------------------------------------------------------------------------


def answer(results: Results, validation: Rows | None, headline_band: Rows | None = None) -> Answer | None:
    """validation: what strict_again gives; headline_band: rows of that table as text, or None. None where the strict
    schedule is infeasible: it has no totals.

    Raises InputError where there is no strict schedule.
    """
    schedule = results.schedule(STRICT)
    if schedule.get("time_change_percent") is None:
        return None
    found = {row["quantity"]: row for row in validation or ()}
    energy, time = (_change(schedule, quantity, found.get(quantity)) for quantity in ("energy", "time"))
    about: Mapping[str, str] = found.get("time", {})
    verdict = about.get("verdict") or None
    weights = schedule.get("weights", "")
    totals = _TOTALS.get("step" if weights == "counts" and "step" in results.workload else weights)
    return Answer(
        energy,
        time,
        verdict,
        limit_verdict.limit_in_words(schedule, verdict).replace("-", MINUS),
        about.get("repeats"),
        about.get("interval") or None,
        schedule.get("slack_percent"),
        totals
        and totals.format(
            time=duration(schedule["baseline_time"]), energy=energy_in_words(schedule["baseline_energy"])
        ),
        schedule.get("status") == "optimal" and not schedule.get("walk"),
        how_known(results.gpu, energy.validated is not None),
        _band(headline_band or ()),
        another_minute_pp(schedule),
    )


def strict_again(headline: Rows | None) -> Rows | None:
    """What measuring the strict schedule again gave, of table headline: a row of time and one of energy, as text; None
    where it was not made."""
    for row in headline or ():
        if row["schedule"] == STRICT:
            own = {"interval": row["interval"], "repeats": row["repeats"]}
            time, energy = (_quantity(row, quantity) | own for quantity in ("time", "energy"))
            return [time | {"verdict": row["verdict"]}, energy | {"verdict": ""}]
    return None


def _quantity(row: Mapping[str, str], name: str) -> dict[str, str]:
    columns = ("claimed_{}_change_percent", "fresh_{}_change_percent", "fresh_{}_low_percent", "fresh_{}_high_percent")
    found = {column.replace("{}_", ""): row[column.format(name)] for column in columns}
    return {"quantity": name} | found | {"optimism_pp": row[f"{name}_optimism_pp"]}


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


# --- its table and its plane ------------------------------------------------------------------------------------------


def tolerated(found: Answer, headline: Rows | None, one_pair: tuple[float, float] | None) -> list[Tolerated]:
    """The first table: the strict choice, those with more time, and what one pair for the whole run gives.

    headline: rows of that table as text, or None; one_pair: its claimed changes of energy and time, or None.
    """
    again = {row["schedule"]: row for row in headline or ()}
    rows = [_strict_row(found)]
    for name, row in again.items():
        limit = number(row.get("slack_percent") or "")
        if limit and name.startswith(_PER_KERNEL):
            energy, time = (number(row[f"fresh_{quantity}_change_percent"]) for quantity in ("energy", "time"))
            if energy is not None and time is not None:
                rows.append(Tolerated(f"{limit:g} % longer", _note(row["verdict"]), energy, time, found.how))
    if one_pair:
        rows.append(Tolerated("no longer, one pair for the run", "", *one_pair, "claimed"))
    return rows


def _strict_row(found: Answer) -> Tolerated:
    limit = found.slack_percent or 0
    of = "no longer" if not limit else f"{limit:g} % longer"
    if found.energy.validated is None or found.time.validated is None:
        return Tolerated(of, "", found.energy.claimed or 0.0, found.time.claimed or 0.0, found.how)
    return Tolerated(of, _note(found.verdict), found.energy.validated, found.time.validated, found.how)


def _note(verdict: str | None) -> str:
    return "(time limit missed)" if verdict in limit_verdict.MISSED else ""


def plane(
    changes: Sequence[tuple[str, Change, Change]],
    paper: tuple[float, float] | None = None,
    how: str = MEASURED_AGAIN,
    joined: bool = False,
) -> Plane | None:
    """The plane of labelled changes of (energy, time); None if there is none with both.

    paper: changes of energy and time that the paper measured for the same; how: the word for what was measured again;
    joined: whether a line goes through the points.
    """
    placed = []
    for label, energy, time in changes:
        again = energy.validated is not None and time.validated is not None
        y, x = (each.validated if again else each.claimed for each in (energy, time))
        if x is not None and y is not None:
            placed.append((label, x, y, energy, time, again))
    if not placed:
        return None
    star = [paper] if paper else []
    x_ticks = _ticks(*_reach([time for *_, time, _ in placed], [time for _, time in star]))
    y_ticks = _ticks(*_reach([energy for *_, energy, _, _ in placed], [energy for energy, _ in star]))

    def at(value: float, ticks: list[float], first: float, last: float) -> float:
        return round(first + (last - first) * (value - ticks[0]) / (ticks[-1] - ticks[0]), 1)

    def across(value: float) -> float:
        return at(value, x_ticks, Plane.left, Plane.right)

    def down(value: float) -> float:
        return at(value, y_ticks, Plane.bottom, Plane.top)

    def bar(change: Change, place: Callable[[float], float]) -> tuple[float, float] | None:
        return None if change.low is None or change.high is None else (place(change.low), place(change.high))

    points: list[Point] = []
    # no label lies on a point
    taken = [(across(x) - 6, across(x) + 6, down(y) + 4) for _, x, y, *_ in placed]
    taken += [(across(time) - 9, across(time) + 9, down(energy) + 4) for energy, time in star]
    for label, x, y, energy, time, again in placed:
        said = f"{label}: energy {_said(energy, how)}; time {_said(time, how)}"
        points.append(
            Point(
                across(x),
                down(y),
                bar(time, across) if again else None,
                bar(energy, down) if again else None,
                "again" if again else "claimed",
                _beside(across(x), down(y), label, taken),
                said,
            )
        )
    line = " ".join(f"{each.x},{each.y}" for each in points if each.kind == "again") if joined else ""
    for energy_percent, time_percent in star:
        x, y = across(time_percent), down(energy_percent)
        text = "the paper, real board"
        said = f"the paper, real board: energy {signed(energy_percent, 1)} %; time {signed(time_percent, 1)} %"
        points.append(Point(x, y, None, None, "paper", _beside(x, y, text, taken), said))
    return Plane(
        [(across(tick), signed(tick, _digits(x_ticks))) for tick in x_ticks],
        [(down(tick), signed(tick, _digits(y_ticks))) for tick in y_ticks],
        across(0),
        points,
        line,
    )


def _reach(changes: Sequence[Change], others: Sequence[float]) -> tuple[float, float]:
    """From the least to the most that is drawn of them and 0, with a tenth of that more at an end that is not 0:
    room for marks."""
    drawn = [
        each
        for change in changes
        for each in ((change.claimed,) if change.validated is None else (change.validated, change.low, change.high))
    ]
    values = [0.0, *others, *(each for each in drawn if each is not None)]
    low, high = min(values), max(values)
    room = 0.1 * max(high - low, 1e-3)
    return low - (room if low < 0 else 0), high + (room if high > 0 else 0)


def _beside(x: float, y: float, text: str, taken: list[tuple[float, float, float]]) -> Label | None:
    """Where a point's label stands: the nearest place that is free, and inside; None if there is none. taken: (first,
    last, y) of labels and points so far, which the new one joins."""
    long = _LETTER_PX * len(text)

    def is_free(first: float, line: float) -> bool:
        inside = Plane.left <= first and first + long <= Plane.width and Plane.top < line < Plane.bottom
        return inside and not any(
            abs(line - other) < _LINE_PX and begin < first + long and first < last for begin, last, other in taken
        )

    starts = {"start": x + 9, "end": x - 9 - long}
    rows = [y + lines * _LINE_PX + off for lines in sorted(range(-20, 20), key=abs) for off in (-8, 18)]
    free = next(((side, line) for line in rows for side in starts if is_free(starts[side], line)), None)
    if free is None:
        return None
    side, line = free
    taken.append((starts[side], starts[side] + long, line))
    return Label(text, round(x + (9 if side == "start" else -9), 1), round(line, 1), side)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers about [low, high], 0 among them."""
    rough = max(high - low, 0.1) / _TICKS
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, max(last, first + 1) + 1)]


def _digits(ticks: Sequence[float]) -> int:
    return max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))


def _said(change: Change, how: str) -> str:
    """The same in words, for those who cannot see the plane."""
    text = [] if change.claimed is None else [f"claimed {signed(change.claimed)} %"]
    if change.validated is not None:
        ends = (
            "" if change.low is None or change.high is None else f" ({signed(change.low)} to {signed(change.high)} %)"
        )
        text.append(f"{how} {signed(change.validated)} %{ends}")
    return ", ".join(text)


# --- in a sentence, and what stands for it ----------------------------------------------------------------------------


def sentence(rows: Sequence[Tolerated]) -> list[tuple[str, bool]]:
    """[(words, whether they are the finding)] of the headline, from the first table's rows: what is saved at no loss of
    time, and what a little more time adds."""
    first = rows[0]
    held, take = ("would save", "would take") if first.how != MEASURED_AGAIN else ("save", "take")
    if first.note:
        when = f", but {take} {first.time:.1f} % more time"
    else:
        when = f" {_within(first.limit)}"
    if first.energy > _NOTHING:
        told = [(f"Clocks per kernel {take} {first.energy:.1f} % more energy{when}", False)]
    elif first.energy >= -_NOTHING:
        told = [(f"Clocks per kernel {held} nothing{when}", False)]
    else:
        told = [
            (f"Clocks per kernel {held} ", False),
            (f"{-first.energy:.1f} %", True),
            (f" of the energy{when}", False),
        ]
    if len(rows) > 1:
        more = rows[1]
        if more.limit.endswith("% longer") and not more.note and more.energy < min(first.energy, -_NOTHING):
            told += [(", and ", False), (f"{-more.energy:.1f} %", True), (f" {_within(more.limit)}", False)]
    return told


def _within(limit: str) -> str:
    """Of a row's limit, in a sentence: "at no loss of time", "with 0.6 % more time"."""
    return "at no loss of time" if limit == "no longer" else f"with {limit.replace('longer', 'more time')}"


@dataclass(frozen=True, slots=True)
class Mark:
    """A reason to trust the answer, or not to."""

    where: str  # id of the section that says more; "": it speaks for the answer, and needs no more
    text: str


def marks(found: Answer, cautions: Sequence[Caution], deployable_percent: float | None) -> list[Mark]:
    """What stands for the answer, then what a reader must know, in few words each; `cautions` has the sentences.

    deployable_percent: claimed change of energy where changes of clocks cost time; None: not known.
    """
    told = []
    if found.time.validated is not None and found.time.low is not None and found.time.high is not None:
        repeats = "simulated repeats" if found.how == "forecast" else "repeats"
        over = f" {found.interval}" if found.interval else ""
        ends = f"{signed(found.time.low)} to {signed(found.time.high)} %"
        # where the limit is missed, nothing speaks for the answer
        told.append(Mark("behind" if found.is_missed else "", f"{found.repeats} {repeats}{over}: time {ends}"))
    if found.limit:
        is_doubtful = found.is_missed or found.verdict == limit_verdict.NOT_SHOWN
        told.append(Mark("cautions" if is_doubtful else "", found.limit))
    if found.is_proven and not found.is_missed:
        told.append(Mark("", "no other choice is better (proven)"))
    told += [Mark("cautions", each.title) for each in cautions if each.grave and each.title != _MISSED]
    if found.band is not None:
        band = f"{signed(found.band.low, 1)} to {signed(found.band.high, 1)} %"
        told.append(Mark("behind", f"energy {band} over what nobody has measured, without noise"))
    free = "changes of clocks count as free"
    if deployable_percent is not None:
        free += f"; launch by launch {signed(deployable_percent, 1)} % today (claimed)"
    return [*told, Mark("behind", free)]


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
    said = f"{answer.limit[:1].upper()}{answer.limit[1:]}."
    limit = f"the limit of {signed(answer.slack_percent or 0)} %"
    if answer.is_missed:
        text = f"{said} The time is {signed(answer.time.validated)} %, and its whole 95 % interval lies above {limit}."
        return [Caution(True, _MISSED, text), *found]
    if answer.verdict == limit_verdict.NOT_SHOWN:
        return [Caution(False, _NOT_SHOWN, f"{said} The 95 % interval of the time holds {limit}."), *found]
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
