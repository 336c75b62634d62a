"""The choices that a page offers: for each time that an iteration may take, what that saves, and the command for it.

Three ways of setting clocks, a curve each: a clock for each kernel as if changes were free, what a board can be set to
where they take time, one pair for the run. A choice that was measured again stands at its limit with what that found;
between the limits stand the proven optima of the profile, which are claims.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kernel_dvfs import extensions
from kernel_dvfs.choice.dominance import undominated
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.scopes import solve
from kernel_dvfs.report.page.tables import NOTHING, Cell, Column, Table, duration, energy_in_words, signed
from kernel_dvfs.report.words import how_known
from kernel_dvfs_clocks.clocks import AUTO
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs.report.results import Results

# tolerated slowdowns that the slider stops at, percent of the baseline's time
SLACKS_PERCENT = (0, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5)
FREE, HERE, ONE = "free", "here", "one"
_TWO_SIDED = 1.96  # standard errors in half of a 95 % interval
_CLOUDS = 8  # kernels whose points are drawn
# of a kernel's changes of time and energy, percent: what lies outside is not drawn
_CLOUD_TIME, _CLOUD_ENERGY = (-5.0, 30.0), (-60.0, 20.0)
_TICKS = 6  # of an axis
_COMMAND = "python train.py"
_SEVERAL = {"kernel": "kernels", "pass": "passes"}


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A change against auto, in percent, negative = less. None: not known."""

    claimed: float | None  # by the data that chose
    validated: float | None = None  # by measuring again
    low: float | None = None  # of the 95 % interval of that
    high: float | None = None

    @property
    def best(self) -> float:
        """As measured again, else as claimed; 0 where nothing is known."""
        return next((change for change in (self.validated, self.claimed) if change is not None), 0.0)


@dataclass(frozen=True, slots=True)
class Stop:
    """A choice within a limit."""

    limit_percent: float | None  # of the time, tolerated; None: it was asked for otherwise
    energy: ShownChange
    time: ShownChange
    how: str  # the changes are known, as words.how_known has it
    clocks: str  # in words
    command: str  # that gives this choice; "": there is nothing to set
    note: str = ""  # in small print
    at: Sequence[int] = ()  # option of each target, in the problem

    @property
    def limit(self) -> str:
        """`no longer`, `0.6 % longer`, `1 % shorter`."""
        if self.limit_percent is None:
            return "as asked"
        way = "longer" if self.limit_percent > 0 else "shorter"
        return f"{abs(self.limit_percent):.4g} % {way}" if self.limit_percent else "no longer"

    @property
    def is_measured_again(self) -> bool:
        """Return whether both changes were."""
        return self.energy.validated is not None and self.time.validated is not None


@dataclass(frozen=True, slots=True)
class ChoiceCurve:
    """A way of setting clocks: its choices by ascending limits."""

    name: str  # FREE, HERE or ONE
    title: str
    stops: list[Stop]


@dataclass(frozen=True, slots=True)
class ChoiceSource:
    """What commands choose from, as a reader would type it."""

    profile: str
    walk: str = ""  # the by_clock.json whose walks have shown the choices that were made; "": none
    options: Mapping[str, str] = field(default_factory=dict)  # of `choose`, besides --slack, that are not its defaults

    def choose(self, limit_percent: float | None, is_walked: bool = False, **more: str) -> str:
        """Return the command that chooses clocks within a limit. more: further options."""
        words = [f"--{name} {value}" for name, value in {**self.options, **more}.items()]
        words += [f"--slack {limit_percent:g}"] if limit_percent else []
        words += [f"--walk {shlex.quote(self.walk)}"] if is_walked and self.walk else []
        return " ".join(["kernel-dvfs choose", shlex.quote(self.profile), *words, "-o clocks.json"])


@dataclass(frozen=True, slots=True)
class StudyChoice:
    """A choice that a study made at a limit: its schedule, and its changes as they are known."""

    schedule: Mapping[str, Any]
    energy: ShownChange
    time: ShownChange
    note: str = ""


# --- curves -----------------------------------------------------------------------------------------------------------


def free(problem: Problem, gpu: Mapping[str, Any], shown: Iterable[StudyChoice], source: ChoiceSource) -> ChoiceCurve:
    """Return clocks for each target as if changes of them were free. shown: what was chosen; it takes its limit's
    place."""
    stops: dict[float | None, Stop] = {}
    kind = source.options.get("granularity", "kernel")
    title = f"Clocks for each {kind}, changes free"
    for choice in shown:
        schedule = choice.schedule
        is_waste = (schedule["scope"], schedule["objective"]) == ("global", "waste")
        limit = schedule["slack_percent"] or 0 if is_waste else None
        at = options_of(problem, schedule["targets"]).tolist()
        again = choice.energy.validated is not None
        otherwise = {} if is_waste else {name: schedule[name] for name in ("scope", "objective")}
        command = source.choose(schedule["slack_percent"], bool(schedule["walk"]), **otherwise)
        words = _in_words(problem, at, kind)
        if schedule["scope"] == "single":
            title = f"As asked: one pair for the run; else {title[0].lower()}{title[1:]}"
            words = setting_in_words(_setting(problem, at[0]))
        stops[limit] = Stop(limit, choice.energy, choice.time, how_known(gpu, again), words, command, choice.note, at)
    fine = undominated(problem)
    place = {(target, key): at for at, (target, key) in enumerate(zip(problem.target.tolist(), problem.key.tolist()))}
    for limit in SLACKS_PERCENT:
        optimum = solve(fine, "global", "waste", limit / 100, effort=0)
        if limit not in stops and optimum.option is not None:
            at = [place[int(fine.target[option]), int(fine.key[option])] for option in optimum.option]
            stops[limit] = Stop(
                limit, *_claimed(problem, at), how_known(gpu, False), _in_words(problem, at, kind),
                source.choose(limit, False), at=at,
            )  # fmt: skip
    return ChoiceCurve(FREE, title, [stops[limit] for limit in sorted(stops, key=_rank)])


def one(
    problem: Problem, gpu: Mapping[str, Any], shown: Mapping[float | None, Stop], limits: Iterable[float]
) -> ChoiceCurve:
    """Return one setting for the whole run at each limit. shown: {limit: the choice that was made}."""
    stops = [shown[None]] if None in shown else []
    for limit in limits:
        optimum = solve(problem, "single", "waste", limit / 100)
        if limit in shown:
            stops.append(shown[limit])
        elif optimum.option is not None:
            stops.append(_one(problem, gpu, optimum.option.tolist(), limit))
    return ChoiceCurve(ONE, "One pair for the run", stops)


def _one(problem: Problem, gpu: Mapping[str, Any], at: Sequence[int], limit: float) -> Stop:
    setting = _setting(problem, at[0])
    energy, time = _claimed(problem, at)
    stop = Stop(limit, energy, time, how_known(gpu, False), setting_in_words(setting), apply_at([("", setting)]))
    if not stop.command:
        return replace(stop, note="of all pairs, auto is the best" if _is_auto(setting) else "apply sets clocks alone")
    if list(at) == problem.baseline.tolist():
        return replace(stop, command="", note="of all pairs, what it is compared with is the best")
    error = _error_percent(problem, at)
    if error is not None and -energy.best <= error:
        note = f"{stop.clocks} would save less than can be told from nothing (error {error:.2f} %): nothing to set"
        return replace(stop, command="", note=note)
    return stop


def apply_at(pairs: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return the command that runs a program at [(pass, setting)], "" for the whole run; "" where there is nothing to
    set, or not by it."""
    further = {name for _, setting in pairs for name in setting} - {"core_mhz", "mem_mhz", "power_cap_w"}
    if further or all(_is_auto(setting) for _, setting in pairs):
        return ""
    words = [f"--pair {name}{'=' * bool(name)}{_pair(setting)}" for name, setting in pairs]
    cap = pairs[0][1].get("power_cap_w")
    words += [f"--power-limit {cap:g}"] if cap is not None else []
    return " ".join(["kernel-dvfs apply", *words, f"--baseline -- {_COMMAND}"])


def _setting(problem: Problem, at: int) -> dict[str, Any]:
    """Return {name: value} of an option."""
    return dict(zip(problem.settings, problem.keys[problem.key[at]]))


def setting_in_words(setting: Mapping[str, Any]) -> str:
    """Return `core 1950 MHz, memory auto`; further settings by their names."""
    names = {"core_mhz": "core", "mem_mhz": "memory"}
    words = []
    for name, value in setting.items():
        shown = AUTO if value in (None, AUTO) else value if isinstance(value, str) else f"{value:g}"
        unit = " MHz" if name in names and shown != AUTO else ""
        words.append(f"{names.get(name, name)} {shown}{unit}")
    return ", ".join(words)


def _pair(setting: Mapping[str, Any]) -> str:
    clocks = (setting.get(name) for name in ("core_mhz", "mem_mhz"))
    return ",".join(AUTO if mhz in (None, AUTO) else f"{mhz:g}" for mhz in clocks)


def _is_auto(setting: Mapping[str, Any]) -> bool:
    return all(value in (None, AUTO) for value in setting.values())


def _rank(limit: float | None) -> tuple[bool, float]:
    return limit is not None, limit or 0.0


def options_of(problem: Problem, targets: Mapping[str, Mapping[str, Any]], called: str = "the schedule") -> np.ndarray:
    """Return (K,) the option that each target runs at. Raises InputError for one that the schedule does not name."""
    chosen = problem.baseline.copy()
    for k, members in enumerate(problem.members):
        clocks = targets.get(members[0])
        if not isinstance(clocks, Mapping):
            raise InputError(
                f"{called}: the schedule has no clocks for {members[0]}: give the profile that it was chosen from"
            )
        wanted = tuple(None if clocks.get(name) == AUTO else clocks.get(name) for name in problem.settings)
        options = np.flatnonzero(problem.target == k)
        matches = [at for at in options.tolist() if problem.keys[problem.key[at]] == wanted]
        if not matches:
            raise InputError(
                f"{called}: {members[0]} is chosen at {dict(clocks)}, which this profile lacks: give the profile that "
                "the schedule was chosen from"
            )
        chosen[k] = matches[0]
    return chosen


def _claimed(problem: Problem, at: Sequence[int]) -> tuple[ShownChange, ShownChange]:
    """Return changes of (energy, time) by the profile."""
    energy, time = (
        100 * (float(values[list(at)].sum()) / base - 1)
        for values, base in ((problem.energy, problem.baseline_energy), (problem.time, problem.baseline_time))
    )
    return ShownChange(energy), ShownChange(time)


def _in_words(problem: Problem, at: Sequence[int], kind: str) -> str:
    """Return how many clocks of how many pairs: `46 kernels at 5 pairs`."""
    count, pairs = sum(map(len, problem.members)), len({int(problem.key[option]) for option in at})
    return f"{count} {kind if count == 1 else _SEVERAL[kind]} at {pairs} pair{'s' * (pairs != 1)}"


def _error_percent(problem: Problem, at: Sequence[int]) -> float | None:
    """Return half of the 95 % interval of a choice's change of energy, percent of the baseline's, errors of targets
    independent of each other; None where the profile has none."""
    if problem.energy_se is None:
        return None
    # a target that stays at its baseline has no change, and no error of it
    moved = [(option, base) for option, base in zip(at, problem.baseline.tolist()) if option != base]
    variance = sum(float(problem.energy_se[option]) ** 2 for pair in moved for option in pair)
    error = 100 * _TWO_SIDED * math.sqrt(variance) / problem.baseline_energy
    return error if math.isfinite(error) else None


# --- as a table, whose rows the slider shows --------------------------------------------------------------------------


STOPS = "stops"  # name of the table


def _table(curves: Sequence[ChoiceCurve], baseline: tuple[float, float] | None) -> Table:
    """Return a row a stop: the only place where its numbers become words. baseline: as `offered` has it."""
    rows = []
    for curve in curves:
        for stop in curve.stops:
            energy, time = stop.energy.best, stop.time.best
            row: dict[str, Any] = {"way": curve.title, "limit": stop.limit}
            row |= {"energy": f"{signed(energy, 1)} %", "time": f"{signed(time, 1)} %", "takes": ""}
            if baseline:
                at_j, at_s = baseline
                row["takes"] = f"{energy_in_words(at_j * (1 + energy / 100))}, {duration(at_s * (1 + time / 100))}"
            how = stop.how
            if stop.is_measured_again and stop.energy.claimed is not None:
                how += f" (claimed {signed(stop.energy.claimed, 1)} %)"
            rows.append(row | {"how": how, "clocks": stop.clocks, "command": stop.command, "note": stop.note})
    columns = [Column(name, name, "long" if name in ("command", "note") else "text") for name in rows[0]]
    cells = [[Cell(row[column.name] or NOTHING, row[column.name]) for column in columns] for row in rows]
    return Table(STOPS, "Every stop of the slider", "", columns, cells, folded=False)


# --- as a chart -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A choice that was measured again, in the chart's coordinates."""

    x: float
    y: float
    bar_x: tuple[float, float] | None  # ends of the 95 % intervals
    bar_y: tuple[float, float] | None
    curve: str
    said: str  # the same in words


@dataclass(frozen=True, slots=True)
class Chart:
    """Change of energy over change of time, both in percent of auto: down and left is less."""

    x_ticks: list[tuple[float, str]]  # (place, label)
    y_ticks: list[tuple[float, str]]
    zero_x: float  # left of it no time is lost
    lines: list[tuple[str, str]]  # (name of the curve, its points as SVG has them)
    points: list[ChartPoint]
    places: dict[str, dict[str, tuple[float, float]]]  # {name of the curve: {limit: place of its stop}}
    star: tuple[float, float] | None  # the paper's own point

    width, height = 640, 380
    left, right, top, bottom = 62, 622, 22, 336  # of what is between the axes


def chart(curves: Sequence[ChoiceCurve], paper: tuple[float, float] | None = None) -> Chart:
    """Return the chart of curves. paper: changes of energy and time that the paper measured for the same."""
    stops = [stop for curve in curves for stop in curve.stops]
    star = [paper] if paper else []
    x_ticks = _ticks(*_reach([stop.time for stop in stops], [time for _, time in star]))
    y_ticks = _ticks(*_reach([stop.energy for stop in stops], [energy for energy, _ in star]))

    def across(value: float) -> float:
        return _at(value, (x_ticks[0], x_ticks[-1]), (Chart.left, Chart.right))

    def down(value: float) -> float:
        return _at(value, (y_ticks[0], y_ticks[-1]), (Chart.bottom, Chart.top))

    def bar(change: ShownChange, place: Callable[[float], float]) -> tuple[float, float] | None:
        return None if change.low is None or change.high is None else (place(change.low), place(change.high))

    lines, points, places = [], [], {}
    for curve in curves:
        spots = [(across(stop.time.best), down(stop.energy.best)) for stop in curve.stops]
        places[curve.name] = {stop.limit: place for stop, place in zip(curve.stops, spots)}
        ordered = sorted({place for place, stop in zip(spots, curve.stops) if stop.limit_percent is not None})
        lines.append(
            (curve.name, " ".join(f"{x},{y}" for x, y in (_stairs(ordered) if curve.name != FREE else ordered)))
        )
        for (x, y), stop in zip(spots, curve.stops):
            if stop.is_measured_again:
                energy, time = (_said(change, stop.how) for change in (stop.energy, stop.time))
                words = f"{curve.title}, {stop.limit}: energy {energy}; time {time}"
                points.append(ChartPoint(x, y, bar(stop.time, across), bar(stop.energy, down), curve.name, words))
    return Chart(
        [(across(tick), signed(tick, _digits(x_ticks))) for tick in x_ticks],
        [(down(tick), signed(tick, _digits(y_ticks))) for tick in y_ticks],
        across(0),
        lines,
        points,
        places,
        (across(paper[1]), down(paper[0])) if paper else None,
    )


def _stairs(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of choices that cannot be mixed: each until the next one's time."""
    corners = list(places[:1])
    for (x, y), (_, before) in zip(places[1:], places):
        corners += [(x, before), (x, y)]
    return corners


def _at(value: float, of: tuple[float, float], to: tuple[float, float]) -> float:
    return round(to[0] + (to[1] - to[0]) * (value - of[0]) / (of[1] - of[0]), 1)


def _reach(changes: Sequence[ShownChange], others: Sequence[float]) -> tuple[float, float]:
    """Return the least and the most that is drawn of them and 0."""
    ends = [end for change in changes for end in (change.best, change.low, change.high) if end is not None]
    values = [0.0, *others, *ends]
    return min(values), max(values)


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers about [low, high], 0 among them."""
    rough = max(high - low, 0.1) / _TICKS
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, max(last, first + 1) + 1)]


def _digits(ticks: Sequence[float]) -> int:
    return max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))


def _said(change: ShownChange, how: str) -> str:
    """Return a change in words, for those who cannot see the chart."""
    ends = "" if change.low is None or change.high is None else f" ({signed(change.low)} to {signed(change.high)} %)"
    return f"{how} {signed(change.best)} %{ends}"


# --- each kernel at every pair ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cloud:
    """A kernel's changes at every setting, and where the choice of each stop lies among them."""

    title: str
    dots: str  # as the path of an SVG has them
    origin: tuple[float, float]  # its baseline
    rings: list[tuple[float, float]]  # a stop of the free curve each
    said: list[str]  # the same in words

    width, height = 200, 130


def clouds(problem: Problem, curve: ChoiceCurve) -> list[Cloud]:
    """Return the kernels that save most at the first stop that saves anything, the largest part first."""
    at = next((stop.at for stop in curve.stops if stop.energy.best < 0), problem.baseline.tolist())
    saved = problem.energy[problem.baseline] - problem.energy[list(at)]
    order = np.lexsort((-problem.energy[problem.baseline], -saved)).tolist()
    return [_cloud(problem, curve, k) for k in order[:_CLOUDS]]


def _cloud(problem: Problem, curve: ChoiceCurve, k: int) -> Cloud:
    base = problem.baseline[k]
    time, energy = (100 * (values / values[base] - 1) for values in (problem.time, problem.energy))

    def place(option: int) -> tuple[float, float]:
        return (
            _at(float(time[option]), _CLOUD_TIME, (0, Cloud.width)),
            _at(float(energy[option]), _CLOUD_ENERGY, (Cloud.height, 0)),
        )

    inside = [
        place(option)
        for option in np.flatnonzero(problem.target == k).tolist()
        if _CLOUD_TIME[0] <= time[option] <= _CLOUD_TIME[1] and _CLOUD_ENERGY[0] <= energy[option] <= _CLOUD_ENERGY[1]
    ]
    chosen = [stop.at[k] for stop in curve.stops]
    words = [
        f"{setting_in_words(_setting(problem, option))}: "
        f"{signed(float(energy[option]), 1)} % energy, {signed(float(time[option]), 1)} % time"
        for option in chosen
    ]
    dots = "".join(f"M{x:g} {y:g}h0" for x, y in sorted(set(inside)))
    return Cloud(", ".join(problem.members[k]), dots, place(int(base)), [place(option) for option in chosen], words)


# --- all of it --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """What stands on a page's first screen."""

    limits: list[str]  # where the slider stops
    made: list[Stop]  # the choices that were made, the answer first: the slider stands there
    names: list[tuple[str, str]]  # (name, title) of the curves
    stops: Table  # what the slider shows
    chart: Chart
    clouds: list[Cloud] = field(default_factory=list)
    best_today: ShownChange | None = None  # of energy, that can be set within the answer's limit; None: not known
    costs: str = ""  # what a change of clocks takes and costs, in words; "": not known

    @property
    def cards(self) -> list[tuple[str, dict[str, str]]]:
        """[(name of the curve, its row)] before the slider is moved; of a way without a stop there, an empty row."""
        columns = [column.name for column in self.stops.columns]
        rows = [dict(zip(columns, (cell.value for cell in row))) for row in self.stops.rows]
        row_of = {row["way"]: row for row in rows if row["limit"] == self.made[0].limit}
        empty = {**dict.fromkeys(columns, ""), "note": "none here"}
        return [(name, row_of.get(title, {**empty, "way": title})) for name, title in self.names]


def frontier(
    profile: str,
    problem: Problem,
    gpu: Mapping[str, Any],
    shown: Sequence[StudyChoice],
    source: ChoiceSource,
    results: Results | None = None,
    paper: tuple[float, float] | None = None,
) -> FirstScreen:
    """Return a page's first screen. profile: path of what the problem was made of. shown: what was chosen, the answer
    first. results: of the study that it belongs to, if any. paper: changes of energy and time that the paper measured
    for the same."""
    clocks = free(problem, gpu, shown, source)
    limits = [stop.limit_percent for stop in clocks.stops if stop.limit_percent is not None]
    make = extensions.part("deployable")
    is_iteration = problem.weights == "counts" and "granularity" not in source.options
    today = make(profile, gpu, limits, results) if make and is_iteration else None
    made = [stop for choice in shown for stop in clocks.stops if stop.energy is choice.energy]
    shared: dict[float | None, Stop] = {
        stop.limit_percent: replace(stop, command=apply_at([("", _setting(problem, stop.at[0]))]))
        for stop, choice in zip(made, shown)
        if choice.schedule["scope"] == "single"
    }
    single = one(problem, gpu, shared | (today.one if today else {}), limits)
    curves = [clocks, single]
    if today:
        none = "one pair: nothing better was chosen here"
        single_stops = {stop.limit_percent: replace(stop, note=stop.note or none) for stop in single.stops}
        best = [
            min(candidates, key=lambda stop: stop.energy.best)
            for limit in sorted({*single_stops, *limits}, key=_rank)
            if (candidates := [stop for stop in (single_stops.get(limit), today.here.get(limit)) if stop])
        ]
        curves.insert(1, ChoiceCurve(HERE, "Deployable here", best))
    set_today = [stop.energy for curve in curves[1:] for stop in curve.stops if stop.limit == made[0].limit]
    baseline = None if problem.weights == "equal-time" else (problem.baseline_energy, problem.baseline_time)
    return replace(
        offered(curves, made, baseline, paper),
        clouds=clouds(problem, clocks),
        best_today=min(set_today, key=lambda change: change.best, default=None) if today and today.one else None,
        costs=today.costs if today else "",
    )


def offered(
    curves: Sequence[ChoiceCurve],
    made: Sequence[Stop],
    baseline: tuple[float, float] | None,
    paper: tuple[float, float] | None = None,
) -> FirstScreen:
    """Return the slider over curves, the first of which has every limit. made: its stops that were chosen, the answer
    first. baseline: energy and time that changes are against, J and s; None where the weights make none."""
    return FirstScreen(
        [stop.limit for stop in curves[0].stops],
        [*made],
        [(curve.name, curve.title) for curve in curves],
        _table(curves, baseline),
        chart(curves, paper),
    )
