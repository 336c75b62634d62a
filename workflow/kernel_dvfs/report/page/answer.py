"""The answer of a study: what the strict schedule saves, and those with more time, in a sentence; and what a reader
must know before trusting it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_dvfs import limit_verdict
from kernel_dvfs.gpu.spec import savings_of
from kernel_dvfs.layout import STRICT
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.report.inference import Band
from kernel_dvfs.report.measured_tables import DIFFERS
from kernel_dvfs.report.page.frontier import ShownChange, Stop, StudyChoice
from kernel_dvfs.report.page.provenance import Tally
from kernel_dvfs.report.page.tables import MINUS, Rows, Table, duration, energy_in_words, signed
from kernel_dvfs.report.results import Results
from kernel_dvfs.report.words import MEASURED_AGAIN, another_minute_pp, how_known
from kernel_dvfs.student import WITHIN_SESSION

# what a total is, by the weights that it is made with
_TOTALS = {
    "counts": "one training iteration takes {time} and {energy}",
    "step": "the kernels of one step, each measured alone, take {time} and {energy} together",
    "raw": "all kernels, each launched once, take {time} and {energy}",
}
_NOTHING = 0.05  # percent of energy that rounds to nothing
# titles of cautions whose text a mark has already
_MISSED, _NOT_SHOWN = "Time limit missed", "Time limit not shown to be kept"
MISSED_NOTE = "time limit missed"
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
class Answer:
    """What the strict schedule gives."""

    energy: ShownChange
    time: ShownChange
    verdict: str | None  # of measuring again on the time limit, one of limit_verdict
    limit: str  # what is known of the time limit, in words; "": nothing
    repeats: int | None  # of measuring it again
    interval: str | None  # what its intervals are over
    slack_percent: float | None  # the limit
    baseline: str | None  # what the same costs at auto clocks, in words
    is_proven: bool  # whether no other choice is better by the data that chose; a walk's choice has its limit instead
    how: str  # the changes to believe are known, as words.how_known has it
    band: Band | None = None
    another_minute_points: float | None = None  # of energy, that another minute of measuring may add at most

    @property
    def is_missed(self) -> bool:
        """Return whether it takes longer than it may, as measuring again says."""
        return self.verdict in limit_verdict.MISSED


@dataclass(frozen=True, slots=True)
class Caution:
    """What a reader must know before trusting a page."""

    grave: bool
    title: str
    text: str  # one sentence


# --- the answer -------------------------------------------------------------------------------------------------------


def answer(results: Results, validation: Mapping[str, Any] | None, band: Band | None = None) -> Answer | None:
    """Return the answer of a study. validation: what strict_again gives; band: what was inferred of the board. None
    where the strict schedule is infeasible: it has no totals.

    Raises InputError where there is no strict schedule.
    """
    schedule = results.schedule(STRICT)
    if schedule.get("time_change_percent") is None:
        return None
    shown = shown_of(schedule, validation)
    verdict = validation["verdict"] if validation else None
    weights = schedule.get("weights", "")
    totals = _TOTALS.get("step" if weights == "counts" and "step" in results.workload else weights)
    return Answer(
        shown.energy,
        shown.time,
        verdict,
        limit_verdict.limit_in_words(schedule, verdict).replace("-", MINUS),
        validation["repeats"] if validation else None,
        validation["interval"] if validation else None,
        schedule.get("slack_percent"),
        totals
        and totals.format(
            time=duration(schedule["baseline_time"]), energy=energy_in_words(schedule["baseline_energy"])
        ),
        schedule.get("status") == "optimal" and not schedule.get("walk"),
        how_known(results.gpu, shown.energy.validated is not None),
        band,
        another_minute_pp(schedule),
    )


def strict_again(headline: Rows | None) -> Mapping[str, Any] | None:
    """Return what measuring the strict schedule again gave: its row of table headline; None where it was not made."""
    return next((row for row in headline or () if row["schedule"] == STRICT), None)


def shown_of(schedule: Mapping[str, Any], row: Mapping[str, Any] | None) -> StudyChoice:
    """Return a schedule as the first screen shows it. row: what measuring it again gave, of table headline."""
    energy, time = (
        ShownChange(
            schedule[f"{name}_change_percent"],
            *(row[f"fresh_{name}_{bound}_percent"] for bound in ("change", "low", "high") if row),
        )
        for name in ("energy", "time")
    )
    return StudyChoice(schedule, energy, time, MISSED_NOTE if row and row["verdict"] in limit_verdict.MISSED else "")


def again_as_rows(row: Mapping[str, Any]) -> Rows:
    """Return a row of table headline as two, of time and of energy."""
    columns = ("claimed_{}_change_percent", "fresh_{}_change_percent", "fresh_{}_low_percent", "fresh_{}_high_percent")
    return [
        {"quantity": name}
        | {column.replace("{}_", ""): row[column.format(name)] for column in columns}
        | {"optimism_pp": row[f"{name}_optimism_pp"], "interval": row["interval"], "repeats": row["repeats"]}
        | {"verdict": row["verdict"] if name == "time" else None}
        for name in ("time", "energy")
    ]


# --- in a sentence, and what stands for it ----------------------------------------------------------------------------


def sentence(stops: Sequence[Stop], today: ShownChange | None = None, per: str = "kernel") -> list[tuple[str, bool]]:
    """Return [(words, whether they are the finding)] of the headline: what is saved at no loss of time, what a little
    more time adds, and what can be set today. stops: the choices that were made, the answer first. per: what has a
    clock each; "run": all share one pair."""
    first = stops[0]
    is_sure = first.how == MEASURED_AGAIN
    of_run = per == "run"
    held, take = (f"{verb}{'s' * of_run}" if is_sure else f"would {verb}" for verb in ("save", "take"))
    clocks = "One pair for the run" if of_run else f"Clocks per {per}"
    energy = first.energy.best
    when = f", but {take} {first.time.best:.1f} % more time" if first.note == MISSED_NOTE else f" {_within(first)}"
    if energy > _NOTHING:
        fragments = [(f"{clocks} {take} {energy:.1f} % more energy{when}", False)]
    elif energy >= -_NOTHING:
        fragments = [(f"{clocks} {held} nothing{when}", False)]
    else:
        fragments = [(f"{clocks} {held} ", False), (f"{-energy:.1f} %", True), (f" of the energy{when}", False)]
    if len(stops) > 1:
        more = stops[1]
        if more.note != MISSED_NOTE and more.energy.best < min(energy, -_NOTHING):
            fragments += [(", and ", False), (f"{-more.energy.best:.1f} %", True), (f" {_within(more)}", False)]
    if today is not None:
        can = "can" if is_sure and today.validated is not None else "could"
        fragments += [("; ", False), (f"{max(0.0, -today.best):.1f} %", True), (f" {can} be set today", False)]
    return fragments


def _within(stop: Stop) -> str:
    """Return a limit in a sentence: "at no loss of time", "within 0.6 % more time", "with 0.5 % less time"."""
    if stop.limit_percent is None:
        return f"with {signed(stop.time.best, 1)} % time"
    if not stop.limit_percent:
        return "at no loss of time"
    size = f"{abs(stop.limit_percent):.4g} %"
    return f"within {size} more time" if stop.limit_percent > 0 else f"with {size} less time"


@dataclass(frozen=True, slots=True)
class Mark:
    """A reason to trust the answer, or not to."""

    where: str  # id of the section that says more; "": it speaks for the answer, and needs no more
    text: str


def marks(answer: Answer, cautions: Sequence[Caution]) -> list[Mark]:
    """Return what stands for the answer, then what a reader must know, in few words each; `cautions` has the
    sentences."""
    listed = []
    if answer.time.validated is not None and answer.time.low is not None and answer.time.high is not None:
        repeats = "simulated repeats" if answer.how == "forecast" else "repeats"
        over = f" {answer.interval}" if answer.interval else ""
        ends = f"{signed(answer.time.low)} to {signed(answer.time.high)} %"
        # where the limit is missed, nothing speaks for the answer
        listed.append(Mark("behind" if answer.is_missed else "", f"{answer.repeats} {repeats}{over}: time {ends}"))
    if answer.limit:
        is_doubtful = answer.is_missed or answer.verdict == limit_verdict.NOT_SHOWN
        listed.append(Mark("cautions" if is_doubtful else "", answer.limit))
    if answer.is_proven and not answer.is_missed:
        listed.append(Mark("", "no other choice is better (proven)"))
    listed += [Mark("cautions", caution.title) for caution in cautions if caution.grave and caution.title != _MISSED]
    if answer.band is not None:
        middle = "" if answer.band.p50 is None else f"{signed(answer.band.p50, 1)} %, "
        ends = f"{signed(answer.band.p05, 1)} to {signed(answer.band.p95, 1)} %"
        listed.append(Mark("behind", f"energy {middle}{ends} {answer.band.meaning}"))
    return [*listed, Mark("behind", "clock changes count as free")]


# --- what to know before trusting it ----------------------------------------------------------------------------------


def cautions(
    gpu: Mapping[str, Any], answer: Answer | None, tally: Tally, kernels: Table | None, locking: Rows | None = None
) -> list[Caution]:
    """Return all cautions, the gravest first. gpu: as a setup or a profile has it. kernels: the table, None where not
    made; locking: rows of that table as text, likewise."""
    listed, kind = [], gpu["kind"]
    if gpu.get("forecast"):
        listed.append(
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
        listed.append(
            Caution(
                True,
                "Simulated GPU",
                "Every number on this page comes from a model of the GPU, not from a board. Savings: "
                f"{savings_of(gpu['name'])}. What it cannot say is in docs/simulated-gpu.md of the project.",
            )
        )
    listed += _of_answer(answer, kind)
    listed += _of_records(tally)
    listed += _of_chosen(kernels)
    listed += _of_headline(answer)
    listed += _of_locking(locking or ())
    return sorted(listed, key=lambda caution: not caution.grave)


def _of_locking(rows: Iterable[Mapping[str, Any]]) -> list[Caution]:
    """Return, where a lock alone changes what a kernel costs, a caution that names the largest difference of each
    way."""
    differing = [row for row in rows if row.get("verdict") == DIFFERS]
    lines = []
    for way in dict.fromkeys(row["way"] for row in differing):
        changes = [
            (abs(value), quantity, value, row["id"])
            for row in differing
            if row["way"] == way
            for quantity in ("time", "energy")
            if (value := row[f"{quantity}_change_percent"]) is not None
        ]
        _, quantity, value, name = max(changes)
        lines.append(f"{way} {signed(value)} % {quantity} ({name})")
    if not lines:
        return []
    return [
        Caution(
            False,
            "A lock changes something by itself",
            f"Locked at the highest clocks, this GPU does not run as at auto: {'; '.join(lines)}. Every "
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
    listed = _of_interval(answer)
    known = f"{answer.limit[:1].upper()}{answer.limit[1:]}."
    limit = f"the limit of {signed(answer.slack_percent or 0)} %"
    if answer.is_missed:
        text = f"{known} The time is {signed(answer.time.validated)} %, and its whole 95 % interval lies above {limit}."
        return [Caution(True, _MISSED, text), *listed]
    if answer.verdict == limit_verdict.NOT_SHOWN:
        return [Caution(False, _NOT_SHOWN, f"{known} The 95 % interval of the time holds {limit}."), *listed]
    return listed


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
    listed = [
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
        listed.append(Caution(True, "Broken records", text))
    if len(tally.setups) > 1:
        setups = ", ".join(tally.setups)
        text = f"The sweep's records come from {len(tally.setups)} setups ({setups}): settings were changed."
        listed.append(Caution(True, "Mixed settings", text))
    return listed


def _of_chosen(kernels: Table | None) -> list[Caution]:
    """Return chosen pairs that are not what the GPU ran."""
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
    """Return how far the headline moves with what no measurement fixes."""
    if answer is None or answer.band is None:
        return []
    text = (
        f"Energy {signed(answer.band.p05)} to {signed(answer.band.p95)} % {answer.band.meaning}. Tensor-core energy, "
        "DRAM traffic of dense products and the highest clock at auto were not measured: docs/simulated-gpu.md of the "
        "project."
    )
    return [Caution(False, "Rests on three unmeasured figures", text)]
