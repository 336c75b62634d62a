"""From a profile and a graph to plans: `Planner`, the one object that users of the library talk to, and its `Plan`.

profile = read_stage_profile("stages.csv")
planner = Planner(profile, pipeline_graph("1f1b", 8, 12), blocking_w=83.64)
plan = planner.plan(28.4)                          # never later than 28.4 s, least energy
plan = planner.plan_for_straggler(34.0)            # the others wait until 34.0 s: use the time

A plan says what every stage runs when and at which clocks; its promise, its realised time, its energy.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_sealed
from kernel_dvfs_pipeline import rounding
from kernel_dvfs_pipeline.bracket import ERROR, Bracket, Programme, Solved
from kernel_dvfs_pipeline.curve import TICKS_PER_S, UW_PER_W, OperationOptions, curve_of, options_of, split_options
from kernel_dvfs_pipeline.frontier import Frontier, FrontierCorners, parametric_frontier
from kernel_dvfs_pipeline.graph import Graph
from kernel_dvfs_pipeline.rounding import Offered, Rounded, round_to_options
from kernel_dvfs_pipeline.stage_profile import Key, StageProfile
from kernel_dvfs_pipeline.study import KINDS, ONE_CLOCK, PLAN_SCHEMA, Corner, read_records

PYTHON = "Python"  # what searched, where the core is not built
# seconds that stand for a time may have been rounded down by float64
_SAME = 1 - 1e-12
# a budget's plan is searched for to this share of its time, from the first of so many times that has one
_CLOSE, _ASKED = 1e-4, 9
_FEW = 4000  # operations: up to so many the exact frontier takes a second or two; beyond, the core brackets it
_START = 4e-4  # of the energy: the error of the solution that beams start from
_TICKS_PER_US = TICKS_PER_S // 10**6


class Part(NamedTuple):
    """Clocks of an operation, or of a share of its kernels."""

    core_mhz: float | None  # None: auto, or a setting
    mem_mhz: float | None
    share: float  # of the operation's kernels
    setting: str | None  # name of a setting that gives each kernel clocks of its own; None: the pair above


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One plan of one pipeline."""

    kind: str  # "one clock", "split" or a baseline's name
    graph: Graph
    promised_ticks: int  # the time that was asked for
    time_ticks: int  # its own, at measured durations
    cost_j: float  # sum of effective energies
    bound_j: float | None  # the least possible at the promised time; None for a baseline
    blocking_w: float  # S P_blk, what the whole pipeline draws while every stage waits
    begin_ticks: np.ndarray  # (N,)
    end_ticks: np.ndarray  # (N,)
    parts: list[tuple[Part, ...]]  # (N,), each in the order in which they run
    synchronising_w: float = math.nan  # what it draws when it is done and waits for other pipelines; nan: blocking_w
    transfer_j: float = 0.0  # of an iteration's transfers between stages; no plan changes it
    search: str = ""  # what looked for it: `compiled core` or `Python`; "" for a baseline
    note: str = ""  # what the asker should know
    kernel_settings: dict[str, dict] = field(default_factory=dict)  # {setting: {kernel id: (core, memory) MHz}}

    @property
    def time_s(self) -> float:
        return self.time_ticks / TICKS_PER_S

    @property
    def gap(self) -> float | None:
        """Proven: no plan of the promised time takes less energy than this one by more than this share of it."""
        if self.bound_j is None:
            return None
        least_j = self.bound_j + self.transfer_j + self.blocking_w * self.promised_ticks / TICKS_PER_S
        return (self.cost_j - self.bound_j) / least_j

    def energy_j(self, until_s: float | None = None) -> float:
        """Return the pipeline's energy in an iteration that lasts until `until_s` (default: as long as the plan)."""
        waits_s = 0.0 if until_s is None else until_s - self.time_s
        waiting_w = self.blocking_w if math.isnan(self.synchronising_w) else self.synchronising_w
        return self.cost_j + self.transfer_j + self.blocking_w * self.time_s + waiting_w * waits_s

    def by_stage(self) -> dict[int, list[int]]:
        """Return {stage: numbers of its operations in their order}: positions in `parts` and the graph."""
        numbers: dict[int, list[int]] = {stage: [] for stage in range(self.graph.stages)}
        for number in np.argsort(self.begin_ticks, kind="stable").tolist():
            numbers[self.graph.operations[number].stage].append(number)
        return numbers

    def document(self) -> dict:
        """Return the plan as JSON: totals, then per stage the instructions in the order in which they run."""

        def instruction(number: int) -> dict:
            operation = self.graph.operations[number]
            return {
                "instruction": operation.instruction,
                "virtual_stage": operation.virtual_stage,
                "microbatch": operation.microbatch,
                "begin_s": float(self.begin_ticks[number] / TICKS_PER_S),
                "end_s": float(self.end_ticks[number] / TICKS_PER_S),
                "clocks": [_clocks(part) for part in self.parts[number]],
            }

        return {
            "schema": PLAN_SCHEMA,
            "kind": self.kind,
            "promised_time_s": self.promised_ticks / TICKS_PER_S,
            "time_s": self.time_s,
            "energy_j": self.energy_j(),
            "effective_energy_j": self.cost_j,
            "least_effective_energy_j": self.bound_j,
            "gap": self.gap,
            "blocking_w": self.blocking_w,
            "synchronising_w": None if math.isnan(self.synchronising_w) else self.synchronising_w,
            "transfer_j": self.transfer_j,
            "search": self.search,
            "note": self.note,
            "ranks": [
                {"stage": stage, "instructions": [instruction(number) for number in numbers]}
                for stage, numbers in self.by_stage().items()
            ],
            "kernel_settings": {
                name: {kernel: {"core_mhz": core, "mem_mhz": mem} for kernel, (core, mem) in clocks.items()}
                for name, clocks in self.kernel_settings.items()
            },
        }


def _clocks(part: Part) -> dict:
    """Return what a part of an operation runs at: a pair, or the name of a setting in `kernel_settings`."""
    if part.setting is not None:
        return {"kernel_setting": part.setting, "share_of_kernels": part.share}
    return {"core_mhz": part.core_mhz, "mem_mhz": part.mem_mhz, "share_of_kernels": part.share}


def write_plan(path: Path | str, plan: Plan, about: dict, made_of: Mapping[str, str | Path] | None = None) -> None:
    """Write a plan as JSON, whole or not at all. about: further fields, such as the profile's name. made_of: files that
    it follows from."""
    write_sealed(path, plan.document() | about, made_of)


def saving_line(plan: Plan, base: Plan) -> str:
    """Return one line: what a plan saves against `base`, both for as long as the longer of them lasts, and how good it
    is proven to be. Search in Python alone is named, with the remedy."""
    until_s = max(plan.time_s, base.time_s)
    saved = 100 * (1 - plan.energy_j(until_s) / base.energy_j(until_s))
    line = f"{plan.time_s:.6g} s (all-max {base.time_s:.6g} s): saves {saved:.2f} % at the same time"
    if plan.gap is not None:
        line += f", proven within {100 * max(plan.gap, 0):.2f} %"
    if plan.search == PYTHON:
        line += "; searched by Python alone, more slowly and less well: kernel-dvfs build --pipeline on --beside"
    return line


class Planner:
    """Plans of one pipeline.

    blocking_w: what one stage draws while it waits, W, all its tensor-parallel ranks together (as the profile's
    energies). kernels: equal kernels that an operation is made of, for plans that split it. synchronising_w: what one
    stage draws when its pipeline is done and waits for others, within the all-reduce of gradients (None: blocking_w).
    transfer_w: what a transfer between two stages draws on top, at both ends together.
    Raises InputError for a stage or instruction that the profile lacks, and for a stage that the graph leaves out.
    """

    def __init__(
        self,
        profile: StageProfile,
        graph: Graph,
        blocking_w: float,
        kernels: int = 50,
        synchronising_w: float | None = None,
        transfer_w: float = 0.0,
    ) -> None:
        powers = {"blocking": blocking_w, "synchronising": synchronising_w or 0.0, "transfer": transfer_w}
        for what, watts in powers.items():
            if not (math.isfinite(watts) and watts >= 0):
                raise InputError(f"pipeline: {what} power {watts} W: expected a number >= 0")
        self.profile, self.graph, self.stage_blocking_w, self.kernels = profile, graph, blocking_w, kernels
        self.blocking_w = graph.stages * blocking_w
        self.synchronising_w = math.nan if synchronising_w is None else graph.stages * synchronising_w
        self.transfer_j = transfer_w * float(graph.lag_ticks.sum()) / TICKS_PER_S
        self._solved = (-1, 0.0)  # the last iteration time of the core's programme, and its lower bound
        self._laid_out: dict[str, Offered] = {}
        self._is_read = False  # whether the frontier came from files: its corners alone
        self.keys = [(operation.virtual_stage, operation.instruction) for operation in graph.operations]
        needed = 1 + max(stage for stage, _ in self.keys)
        if profile.stages > needed:
            raise InputError(
                f"{profile.name}: {profile.stages} stages, the schedule uses {needed}: ask for as many stages (times "
                "chunks), or remove rows"
            )
        self.options = {
            key: options_of(settings.time_s, settings.energy_j, blocking_w)
            for key in dict.fromkeys(self.keys)
            for settings in [profile.of(*key)]
        }
        self.curves = {key: curve_of(options) for key, options in self.options.items()}
        most_w = max(
            float((settings.energy_j / settings.time_s).max()) for settings in map(profile.of, *zip(*self.options))
        )
        if blocking_w > most_w:
            raise InputError(
                f"{profile.name}: a stage that waits draws {blocking_w:g} W, more than any of its operations "
                f"({most_w:.4g} W at most); give both of the same GPUs: --blocking-w, or the energies by --scale-energy"
            )

    @property
    def notes(self) -> list[str]:
        """Return what of the profile's file was left out; a line for each instruction that offers no trade-off: it is
        planned with constant time."""
        lines: list[str] = list(self.profile.notices)
        for (stage, instruction), curve in sorted(self.curves.items()):
            if len(curve.ticks) == 1:
                why = "energy only rises with time" if self.profile.has_choice(stage, instruction) else "one clock only"
                lines.append(f"{self.profile.name}: stage {stage} {instruction}: {why}, so its time is constant")
        return lines

    @cached_property
    def frontier(self) -> Frontier:
        """The frontier, solved once: exact up to 4,000 operations; beyond, with the core, a Bracket within 0.1 %."""
        return self._solved_frontier

    def read_frontier(self, path: Path | str, inputs: Mapping[str, str | Path]) -> None:
        """Take the frontier that `pipeline frontier` wrote for this pipeline; then, with the core, none is solved.

        inputs: what it was made of, see study.read_records. Raises InputError where it is another pipeline's.
        """
        corners = read_records(path, Corner, inputs, "pipeline frontier")
        if not all(map(math.isfinite, (number for corner in corners for number in astuple(corner)))):
            corners = []
        ticks = np.array([round(corner.time_s * TICKS_PER_S) for corner in corners], np.int64)
        cost_j = np.array([corner.effective_energy_j for corner in corners])
        waits_j = np.array([corner.energy_j for corner in corners]) - cost_j
        least_j = sum(float(self.curves[key].cost_j[-1]) for key in self.keys)
        same = (
            len(corners) > 0
            and bool((np.diff(ticks) < 0).all() and (np.diff(cost_j) >= 0).all())
            and np.allclose(ticks[[-1, 0]], self.ends_ticks, rtol=1e-12)
            and np.allclose(waits_j, self.blocking_w * ticks / TICKS_PER_S + self.transfer_j, rtol=1e-6)
            and math.isclose(cost_j[0], least_j, rel_tol=ERROR)
        )
        if not same:
            raise InputError(
                f"{path}: the frontier of another pipeline; write it with kernel-dvfs pipeline frontier and the same "
                "stages, schedule and powers"
            )
        price_uw = np.rint([corner.price_w * UW_PER_W for corner in corners]).astype(np.int64)
        records = FrontierCorners(ticks, price_uw, np.zeros(0, np.int64), np.zeros((0, 0), np.int64))
        self.frontier, self._is_read = Frontier(records, cost_j, self.blocking_w), True

    def part_of_frontier(self, part: int, parts: int) -> list[Solved]:
        """Return what one of several jobs solves of the frontier, from 1. Raises InputError without the core."""
        solved = self._programme().solved(part=part, parts=parts)
        return [
            Solved(bounds.ticks, bounds.cost_j, bounds.intercept_j, bounds.price_w, self._digest) for bounds in solved
        ]

    def join_frontier(self, paths: Sequence[Path | str], inputs: Mapping[str, str | Path]) -> None:
        """Take the frontier that all the parts in these files make; then none is solved.

        inputs: as read_frontier. Raises InputError where one is missing or another pipeline's, and without the core.
        """
        parts = [read_records(path, Solved, inputs, "pipeline frontier --part") for path in paths]
        is_same = all(bounds.pipeline == self._digest for part in parts for bounds in part)
        frontier = self._programme().joined(parts) if is_same else None
        if frontier is None:
            raise InputError(
                f"{', '.join(map(str, paths))}: not all parts of this pipeline's frontier; write each with kernel-dvfs "
                f"pipeline frontier --part K/{len(parts)} and the same stages, schedule and powers"
            )
        self.frontier, self._is_read = frontier, True

    @cached_property
    def _digest(self) -> str:
        """Of all that a frontier follows from."""
        graph, curves = self.graph, [self.curves[key] for key in dict.fromkeys(self.keys)]
        numbers = [
            graph.tail,
            graph.head,
            graph.lag_ticks,
            *(column for curve in curves for column in (curve.ticks, curve.cost_j)),
        ]
        text = repr((self.keys, self.blocking_w, self.transfer_j, [column.tolist() for column in numbers]))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _programme(self) -> Programme:
        if self._interior is None:
            raise InputError("pipeline: parts of a frontier need the compiled core: kernel-dvfs build --pipeline on")
        return self._interior

    @cached_property
    def _solved_frontier(self) -> Frontier:
        if self._is_large:
            assert self._interior is not None
            return self._interior.frontier()
        curves = [self.curves[key] for key in self.keys]
        slowest_cost = sum(float(curve.cost_j[-1]) for curve in curves)
        return Frontier.of(parametric_frontier(self.graph, curves), slowest_cost, self.blocking_w)

    @cached_property
    def ends_ticks(self) -> tuple[int, int]:
        """The fastest and the slowest iteration of the frontier."""
        fastest, slowest = (
            max(self.graph.finish_ticks([int(self.curves[key].ticks[vertex]) for key in self.keys]))
            for vertex in (0, -1)
        )
        return fastest, slowest

    @cached_property
    def _interior(self) -> Programme | None:
        """The core's linear programme of one clock per operation; None where the core is not built."""
        module = rounding.core()
        if module is None:
            return None
        curves = [self.curves[key] for key in self.keys]
        return Programme(rounding.interior(module, self.graph, curves), curves, self.blocking_w)

    @property
    def _is_large(self) -> bool:
        """Return whether the core's bounds take the place of the exact frontier."""
        return len(self.graph) > _FEW and self._interior is not None

    @cached_property
    def _split(self) -> dict[Key, OperationOptions]:
        return {key: split_options(options, self.curves[key], self.kernels) for key, options in self.options.items()}

    def _offered(self, kind: str) -> Offered:
        # laid out when a plan of the kind is asked for: those of splits are many
        if kind not in self._laid_out:
            offered = self.offered(kind)
            self._laid_out[kind] = Offered([offered[key] for key in self.keys])
        return self._laid_out[kind]

    def plan(self, time_s: float, kind: str = ONE_CLOCK) -> Plan:
        """Return the plan of least energy found that ends by `time_s`.

        A time above the slowest iteration is answered with that plan and a note. Raises InputError for a time below
        the fastest.
        """
        return self.plan_ticks(self._reached("planned time", time_s), kind)

    def plan_ticks(self, ticks: int, kind: str = ONE_CLOCK, thorough: bool = True) -> Plan:
        """Return what `plan` does, with the time in ticks. thorough: search long for one clock per operation; else for
        an answer while others wait."""
        fastest, slowest = self.ends_ticks
        note, planned = "", min(max(ticks, fastest), slowest)
        if ticks < fastest * _SAME:
            note = f"no plan takes {_seconds(ticks)} s: this is the fastest, {_seconds(fastest)} s"
        elif ticks > slowest:
            note = f"no plan gains from {_seconds(ticks)} s: this is the slowest, {_seconds(slowest)} s"
        cheapest, rounded = self.rounded(planned, kind, thorough)
        choice = rounded.choice.tolist()
        return replace(self.plan_of(choice, rounded.finish, planned, cheapest), kind=kind, note=note)

    def rounded(self, ticks: int, kind: str, thorough: bool = True) -> tuple[str, Rounded]:
        """Return (kind, Rounded) of least energy for `ticks` on the frontier; its choice is of self.offered(kind)."""
        point = None if self._interior is None else self._interior.point(ticks, _START)
        if point is not None and (self._is_large or self._is_read):
            begin, end = point.begin, point.end
            self._solved = ticks, point.intercept_j - point.price_w * ticks / TICKS_PER_S
        else:  # the frontier's plan leaves most operations whole durations
            begin, end = (self._solved_frontier if self._is_read else self.frontier).planned(ticks)
        candidates = []
        # one clock is a way to split, too, and rounding is no more than a heuristic
        for way in KINDS[: KINDS.index(kind) + 1]:
            used = point if way == ONE_CLOCK else None
            candidates.append(
                (way, round_to_options(self.graph, self._offered(way), begin, end, ticks, used, thorough))
            )
        return min(candidates, key=lambda candidate: candidate[1].cost_j)

    def _bound_j(self, ticks: int) -> float:
        """Return the least effective energy of iterations of `ticks`."""
        if not (self._is_large or isinstance(self.frontier, Bracket)):
            return float(self.frontier.cost_at(ticks))
        assert self._interior is not None
        if self._solved[0] != ticks:
            self._solved = ticks, self._interior.bounds(min(ticks, self._interior.slowest_ticks)).least_j
        return self._solved[1]

    def offered(self, kind: str) -> dict[Key, OperationOptions]:
        """Return {key: OperationOptions} that plans of a kind choose from."""
        return self.options if kind == ONE_CLOCK else self._split

    def plan_for_straggler(self, time_s: float, kind: str = ONE_CLOCK, thorough: bool = False) -> Plan:
        """Return the plan for a pipeline that must wait until `time_s` anyway: least energy until then.

        All of that time is used, up to the slowest iteration: whatever is left is waited at the synchronising power.
        Where that is below the blocking power, being done early may save more: then less of the time is used.
        thorough: as `plan` does it; by default the answer is quick, as a running job needs it.
        """
        ticks = self._reached("straggler's time", time_s)
        return self.plan_ticks(min(ticks, self._used_ticks), kind, thorough)

    @cached_property
    def _used_ticks(self) -> int:
        """From here on, more time for the work saves nothing: the rest is better waited."""
        gains_w = self.blocking_w - self.synchronising_w
        return self.frontier.ticks_at_price(gains_w) if gains_w > 0 else self.ends_ticks[1]

    def bound_j(self, until_s: float) -> float:
        """Return the least energy of an iteration that lasts until `until_s`: no plan takes less."""
        ticks = min(int(until_s * TICKS_PER_S), self._used_ticks)
        waiting_w = self.blocking_w if math.isnan(self.synchronising_w) else self.synchronising_w
        rest_j = waiting_w * (until_s - ticks / TICKS_PER_S)
        return float(self.frontier.energy_at(ticks)) + self.transfer_j + rest_j

    def _reached(self, what: str, time_s: float) -> int:
        """Return a time that is asked for in whole ticks, rounded down. Raises InputError where none is as fast."""
        if not (math.isfinite(time_s) and time_s > 0):
            raise InputError(f"pipeline: {what} {time_s} s: expected a number > 0")
        ticks, fastest = math.floor(time_s * TICKS_PER_S), self.ends_ticks[0]
        if ticks < fastest * _SAME:
            # rounded up, so that what is printed can be asked for
            raise InputError(
                f"pipeline: {what} {time_s:.9g} s: no iteration is as fast; the fastest takes "
                f"{-(-fastest // _TICKS_PER_US) / 10**6:.6f} s: ask for that or more"
            )
        return ticks

    def plan_for_energy(self, budget_j: float, kind: str = ONE_CLOCK) -> Plan:
        """Return the fastest plan found that takes at most `budget_j` in an iteration as long as itself.

        The bound says from which time on there may be one; what rounding costs is made up for by more time.
        Raises InputError where no plan found takes as little.
        """
        if not (math.isfinite(budget_j) and budget_j > 0):
            raise InputError(f"pipeline: energy budget {budget_j} J: expected a number > 0")
        frontier = self.frontier
        early = frontier.ticks_at_energy(budget_j - self.transfer_j)
        if early is None:
            least = frontier.energy_j.min() + self.transfer_j
            raise InputError(
                f"pipeline: no iteration takes {budget_j:.6g} J; the least is {least:.6g} J: raise the budget"
            )
        # from the least energy on, slower is dearer as well: a plan within the budget lies between these two
        energy_j, least_at = frontier.energy_j, int(np.argmin(frontier.energy_j))
        slow = slice(least_at, None, -1)
        last = np.interp(budget_j - self.transfer_j, energy_j[slow], frontier.records.ticks[slow])
        asked = np.linspace(early, max(last, early), _ASKED).astype(np.int64).tolist()
        tried: list[Plan] = []

        def fits(ticks: int, thorough: bool) -> bool:
            tried.append(self.plan_ticks(ticks, kind, thorough))
            return tried[-1].energy_j() <= budget_j

        high: int | None = None
        for thorough in (False, True):
            if high is None:
                high = next((ticks for ticks in asked if fits(ticks, thorough)), None)
            low = early
            while high is not None and high - low > _CLOSE * high:
                middle = (low + high) // 2
                if fits(middle, thorough):
                    high = middle
                else:
                    low = middle
        within = [plan for plan in tried if plan.energy_j() <= budget_j]
        if not within:
            least = min(plan.energy_j() for plan in tried)
            raise InputError(
                f"pipeline: no plan was found within {budget_j:.9g} J; the least that was found takes {least:.9g} J: "
                "raise the budget, or allow splits"
            )
        return min(within, key=lambda plan: plan.time_ticks)

    def plan_for_price(self, price_w: float, kind: str = ONE_CLOCK) -> Plan:
        """Return the plan where one second less would cost `price_w` of effective energy."""
        if not (math.isfinite(price_w) and price_w >= 0):
            raise InputError(f"pipeline: price {price_w} W: expected a number >= 0")
        return self.plan_ticks(self.frontier.ticks_at_price(price_w), kind)

    def plan_of(self, choice: Sequence[int], finish: Sequence[int] | np.ndarray, promised: int, kind: str) -> Plan:
        """Return the plan in which operation i runs at option choice[i] of its own and ends at finish[i] ticks."""
        offered = self.offered(kind)
        settings: dict[str, dict] = {}
        known = {
            (key, at): (self._parts(key, options, at, settings), int(options.ticks[at]), float(options.cost_j[at]))
            for key, at in dict.fromkeys(zip(self.keys, choice))
            for options in [offered[key]]
        }
        parts, ticks, costs = zip(*(known[option] for option in zip(self.keys, choice)))
        end = np.asarray(finish)
        return Plan(
            kind=kind,
            graph=self.graph,
            promised_ticks=promised,
            time_ticks=int(end.max()),
            cost_j=sum(costs),
            bound_j=self._bound_j(promised),
            blocking_w=self.blocking_w,
            begin_ticks=end - np.array(ticks),
            end_ticks=end,
            parts=list(parts),
            synchronising_w=self.synchronising_w,
            transfer_j=self.transfer_j,
            search=PYTHON if rounding.core() is None else "compiled core",
            kernel_settings=settings,
        )

    def _parts(self, key: Key, options: OperationOptions, at: int, settings: dict[str, dict]) -> tuple[Part, ...]:
        """Return the Parts of an option; settings of single kernels are added to `settings`."""
        share = float(options.share[at])
        rows = (
            [(options.setting[at], 1 - share), (options.slower[at], share)] if share else [(options.setting[at], 1.0)]
        )
        kernels = self.profile.kernel_clocks.get(key)
        if kernels is None:
            measured = self.profile.of(*key)
            return tuple(Part(*measured.clocks(row), part, None) for row, part in rows)
        names = [f"stage {key[0]} {key[1]} {row}" for row, _ in rows]
        for name, (row, _) in zip(names, rows):
            if name not in settings:
                settings[name] = kernels.at(int(row))
        return tuple(Part(None, None, part, name) for name, (_, part) in zip(names, rows))


def _seconds(ticks: int) -> str:
    return f"{ticks / TICKS_PER_S:.6g}"
