"""Rounds the linear programme's durations to options that exist, never past the promised time.

Each step keeps the promise; the cheapest result counts.

1. Starts. (A) Each operation takes the slowest option within its own planned duration; (B) in order of the graph, the
   slowest option that ends by its planned end, so that time lost by one is handed on.
2. With the core, for one clock per operation: beam searches (native/pipeline/rounding.cpp), which know from the
   programme's flow what a second is worth at every edge; forwards and backwards in time, held to the planned times
   loosely and closely. Then neighbouring stages choose anew within some time, while all else keeps its clocks.
   Otherwise, shared slack (`shifted`): a set of begins and ends moves by one step of time together, so that some
   operations take a slower option and others a faster one. Which set gains most is a minimum cut, solved exactly; where
   an operation would gain more than it would lose, which no cut can say, one of the two is left out, by turns.
3. Repair: while some operation's next slower option fits its float, take the one that saves most, in all or per second.

A heuristic: the bound (frontier.py) says for each plan how much it can lose.

The compiled core (native/pipeline) is used where `kernel-dvfs build` has made it, for the current folder or, with
`--beside`, for all. Everything works without it, slower, and one clock per operation then loses more
(docs/pipeline-details.md): there are no beam searches, and the repair takes operations backwards in time. The bound and
every promise hold all the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from ortools.graph.python import max_flow

from kernel_dvfs.native.load import load
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.curve import OperationOptions, TradeOffCurve
from kernel_dvfs_pipeline.graph import Graph

_CUTS, _IDLE_ROUNDS = 16, 3  # minimum cuts at most; they end after so many rounds that gained nothing
_STEPS = 10  # steps of time that a round tries, each both ways
# of a beam, quick and thorough: (states that it keeps at most, these times operations); of a large graph
_WIDTHS, _NARROW = ((64, 100_000), (256, 400_000)), 4
_SPAN = 32  # operations of each stage among which neighbouring stages choose anew
_ROUNDS = 9  # over all stages and times, at most
_MANY = 10_000  # operations: beyond, narrow beams of all stages alone
_STIFF = (0.1, 1.0)  # how closely beams keep to the planned times
_UNIT_J = 1e-6  # cuts count in whole microjoules
_STILL_J = 1e-6
_NEVER = 2**50
# where an operation could gain more than lose, the share of them that are counted by their loss
_SHARES = (0.0, 0.2, 0.5, 0.8, 1.0)


Times = tuple[np.ndarray, np.ndarray]  # planned begins and ends of all operations, ticks


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """Options chosen for all operations, and what they come to."""

    choice: np.ndarray  # (N,) positions in each operation's options
    cost_j: float  # sum of their effective energies
    finish: np.ndarray  # (N,) ends, ticks
    time_ticks: int  # the realised time of the iteration, the greatest of them


class Offered:
    """Options of all operations as arrays. first: (N + 1,), ticks, cost_j: those of operation i are first[i] to
    first[i + 1]."""

    def __init__(self, options: list[OperationOptions]) -> None:
        kinds: dict[int, OperationOptions] = {id(operation): operation for operation in options}
        self.kinds = list(kinds.values())
        place = {number: at for at, number in enumerate(kinds)}
        self.kind = kind = np.array([place[id(operation)] for operation in options])
        self.members = [np.flatnonzero(kind == at) for at in range(len(self.kinds))]
        self.first = np.concatenate([[0], np.cumsum([len(operation.ticks) for operation in options])])
        self.ticks = np.concatenate([operation.ticks for operation in options])
        self.cost_j = np.concatenate([operation.cost_j for operation in options])

    def __len__(self) -> int:
        return len(self.first) - 1

    def within(self, durations: np.ndarray) -> np.ndarray:
        """Return (N,) the slowest option of at most each duration (ticks), -1 where there is none."""
        choice = np.empty(len(self), np.int64)
        for options, members in zip(self.kinds, self.members):
            choice[members] = np.searchsorted(options.ticks, durations[members], side="right") - 1
        return choice

    def ticks_of(self, choice: np.ndarray) -> np.ndarray:
        """Return (N,) durations."""
        return self.ticks[self.first[:-1] + choice]

    def cost_of(self, choice: np.ndarray) -> np.ndarray:
        """Return (N,) effective energies, J."""
        return self.cost_j[self.first[:-1] + choice]

    @cached_property
    def native(self) -> Any:
        """The same for the core, which must be built."""
        module = core()
        assert module is not None
        return module.Choices(self.first, self.ticks, self.cost_j)


def core(results_dir: str | os.PathLike[str] | None = None) -> Any | None:
    """Return the extension module, or None where it is not built.

    results_dir: the results folder that holds it; None: `results` of the current folder, else beside this package.
    """
    if results_dir is not None:
        return _loaded(os.path.abspath(results_dir))
    return _loaded(os.path.abspath("results")) or _loaded(os.path.dirname(os.path.abspath(__file__)))


def interior(module: Any, graph: Graph, curves: list[TradeOffCurve]) -> Any:
    """Return the linear programme of a graph of any size, solved between two bounds. curves: one per operation."""
    return module.Interior(_edges(module, graph), _hull(module, curves))


def round_to_options(
    graph: Graph,
    offered: Offered,
    begin: np.ndarray,
    end: np.ndarray,
    limit: int,
    point: Any = None,
    thorough: bool = True,
) -> Rounded:
    """Return options for planned begins and ends (ticks, (N,)) that keep `limit` ticks.

    The plan must leave every operation the time of its fastest option; then so does every start. point: the core's
    solution for `limit`, from which beam searches start, wide ones too where `thorough`. Raises ArithmeticError.
    """
    planned = np.asarray(begin), np.asarray(end)
    within = np.maximum(offered.within(planned[1] - planned[0]), 0)
    if point is not None and len(graph) > _MANY:
        candidates = [_rounded(graph, offered, within)]
    else:
        candidates = [
            _finished(graph, offered, start, limit) for start in (within, _by_end(graph, offered, planned[1]))
        ]
    if point is None:
        moved = shifted(graph, offered, planned, limit, _CUTS)
        candidates.append(_finished(graph, offered, offered.within(moved[1] - moved[0]), limit))
    else:
        choice = min(candidates, key=lambda candidate: candidate.cost_j).choice
        candidates.append(_searched(graph, offered, point, limit, choice, thorough))
    best = min(candidates, key=lambda candidate: candidate.cost_j)
    if best.time_ticks > limit:
        raise ArithmeticError(f"a plan takes {best.time_ticks} ticks, more than the promised {limit}")
    return best


def _neighbours(stages: int) -> list[range]:
    """Return, of the stages, those that choose anew together. Each does so with each of its neighbours."""
    together = min(max(3 * stages // 8, 3), stages)
    last = stages - together
    return [range(first, first + together) for first in [*range(0, last, max(together // 3, 1)), last]]


def _searched(graph: Graph, offered: Offered, point: Any, limit: int, choice: np.ndarray, thorough: bool) -> Rounded:
    """Return `choice`, or the best of beam searches: of all operations, then of some stages at a time; a thorough
    search goes on with wide beams."""
    module = core()
    assert module is not None
    search = module.Search(_edges(module, graph), offered.native, point, limit)
    if len(graph) > _MANY:
        return _rounded(graph, offered, search.best(_NARROW, _STIFF, [], 1, 0, choice).astype(np.int64))
    stage = np.array([operation.stage for operation in graph.operations])
    groups = [np.flatnonzero(np.isin(stage, together)) for together in _neighbours(graph.stages)]
    for most, states in _WIDTHS[: 1 + thorough]:
        width = max(min(most, states // len(graph)), _NARROW)
        choice = search.best(width, _STIFF, groups, _SPAN * graph.stages, _ROUNDS, choice)
    return _rounded(graph, offered, choice.astype(np.int64))


@cache
def _loaded(results_dir: str) -> Any | None:
    try:
        return load("pipeline", results_dir)
    except InputError:
        return None


def _edges(module: Any, graph: Graph) -> Any:
    """Return the graph's edges as the core takes them."""
    return module.Edges(graph.tail, graph.head, graph.lag_ticks)


def _hull(module: Any, curves: list[TradeOffCurve]) -> Any:
    """Return the vertices of all operations' curves as the core takes them."""
    first = np.concatenate([[0], np.cumsum([len(curve.ticks) for curve in curves])])
    return module.Choices(
        first,
        np.concatenate([curve.ticks for curve in curves]),
        np.concatenate([curve.cost_j for curve in curves]),
    )


def _by_end(graph: Graph, offered: Offered, end: np.ndarray) -> np.ndarray:
    ticks = [options.ticks.tolist() for options in offered.kinds]
    choice: list[int] = []
    finish: list[int] = []
    for kind, until, waits in zip(offered.kind.tolist(), end.tolist(), graph.before):
        durations = ticks[kind]
        start = max((finish[other] + lag for other, lag in waits), default=0)
        at = len(durations) - 1
        while at and durations[at] > until - start:
            at -= 1
        choice.append(at)
        finish.append(start + durations[at])
    return np.array(choice)


def _finished(graph: Graph, offered: Offered, start: np.ndarray, limit: int) -> Rounded:
    """Return a start, repaired in the better of both ways."""
    ways = (repaired(graph, offered, start, limit, per_second) for per_second in (False, True))
    return _rounded(graph, offered, min(ways, key=lambda way: float(offered.cost_of(way).sum())))


def _rounded(graph: Graph, offered: Offered, choice: np.ndarray) -> Rounded:
    finish = np.array(graph.finish_ticks(offered.ticks_of(choice).tolist()), np.int64)
    return Rounded(choice, float(offered.cost_of(choice).sum()), finish, int(finish.max()))


def repaired(graph: Graph, offered: Offered, start: np.ndarray, limit: int, per_second: bool) -> np.ndarray:
    """Return `start` with slower options while they fit. With the core the one that saves most first, in all or per
    second; without it backwards in the graph's order."""
    module = core()
    if module is not None:
        return module.repair(_edges(module, graph), offered.native, start, limit, per_second).astype(np.int64)
    ticks = offered.ticks_of(start).tolist()
    begin = [end - duration for end, duration in zip(graph.finish_ticks(ticks), ticks)]
    latest, choice = [limit] * len(graph), start.copy()
    for number in reversed(range(len(graph))):
        for other, lag in graph.after[number]:
            latest[number] = min(latest[number], latest[other] - ticks[other] - lag)
        durations = offered.kinds[offered.kind[number]].ticks
        choice[number] = max(int(np.searchsorted(durations, latest[number] - begin[number], side="right")) - 1, 0)
        ticks[number] = int(durations[choice[number]])
    return choice


def shifted(graph: Graph, offered: Offered, planned: Times, limit: int, cuts: int) -> Times:
    """Return begins and ends that offer cheaper options in all than planned, by at most `cuts` moves of sets of times.

    Rounds of moves end when some gained nothing. The random choices have a fixed seed.
    """
    n = len(offered)
    times = np.concatenate([*planned, [0, limit]]).astype(np.int64)
    source, sink = 2 * n, 2 * n + 1
    entry, leave = (np.flatnonzero(np.bincount(ends, minlength=n) == 0) for ends in (graph.head, graph.tail))
    tail = np.concatenate([graph.tail + n, np.full(len(entry), source), leave + n])
    head = np.concatenate([graph.head, entry, np.full(len(leave), sink)])
    lag = np.concatenate([graph.lag_ticks, np.zeros(len(entry) + len(leave), np.int64)])
    rng = np.random.default_rng(0)
    fastest = offered.ticks[offered.first[:-1]]
    begins, ends = np.arange(n), np.arange(n) + n

    def cost_of(durations: np.ndarray) -> np.ndarray:
        return offered.cost_of(offered.within(durations))

    now = cost_of(times[ends] - times[begins])
    idle = done = 0
    while done < cuts and idle < _IDLE_ROUNDS:
        idle += 1
        for step in _steps(offered, times[ends] - times[begins], rng):
            for later in (True, False):
                done += 1
                if done > cuts:
                    break
                durations = times[ends] - times[begins]
                shorter = durations - step
                loss = np.where(shorter < fastest, _NEVER * _UNIT_J, cost_of(np.maximum(shorter, fastest)) - now)
                gain = now - cost_of(durations + step)
                by_loss = rng.random(n) < rng.choice(_SHARES)
                gain = np.where(by_loss, np.minimum(gain, loss), gain)
                # what moves: ends that give their operation more time, begins that take it away; or the other way
                moving = times[head] - times[tail] - lag < step
                inner, outer = (begins, ends) if later else (ends, begins)
                pulled = (tail, head) if later else (head, tail)
                cut = _Cut(inner, outer, np.maximum(loss, gain) - gain, gain, pulled[0][moving], pulled[1][moving])
                chosen = cut.moved()
                if not len(chosen):
                    continue
                tried = times.copy()
                tried[chosen] += step if later else -step
                cost = cost_of(tried[ends] - tried[begins])
                if cost.sum() < now.sum() - _STILL_J:
                    times, now, idle = tried, cost, 0
    return times[begins], times[ends]


def _steps(offered: Offered, durations: np.ndarray, rng: np.random.Generator) -> list[int]:
    """Return steps of time worth trying, the longest first: to operations' next slower options, and between options."""
    at = offered.first[:-1] + offered.within(durations)
    next_ = np.minimum(at + 1, offered.first[1:] - 1)
    missing = offered.ticks[next_] - durations
    between = np.concatenate([np.diff(options.ticks) for options in offered.kinds])
    every = np.unique(np.concatenate([missing[missing > 0], between]))
    if len(every) > _STEPS:
        every = rng.choice(every, _STEPS, replace=False)
    return sorted((int(step) for step in every), reverse=True)


class _Cut:
    """Which nodes move, as a minimum cut.

    Operation i costs loss[i] more where inner[i] moves and outer[i] does not, gains gain[i] the other way round: for
    x in {0, 1} that is gain (x_inner - x_outer) + excess x_inner (1 - x_outer), excess = loss - gain. Where
    pulling[k] moves, pulled[k] must. The last two nodes are source and sink, which stay.
    """

    def __init__(
        self,
        inner: np.ndarray,
        outer: np.ndarray,
        excess: np.ndarray,
        gain: np.ndarray,
        pulling: np.ndarray,
        pulled: np.ndarray,
    ) -> None:
        self.nodes = 2 * len(inner) + 2
        whole = np.rint(gain / _UNIT_J).astype(np.int64)
        excess = np.minimum(np.rint(excess / _UNIT_J), _NEVER).astype(np.int64)
        weight = np.zeros(self.nodes, np.int64)
        weight[inner] += whole
        weight[outer] -= whole
        start, goal = self.nodes, self.nodes + 1
        wanted, unwanted, dear = np.flatnonzero(weight < 0), np.flatnonzero(weight > 0), np.flatnonzero(excess)
        fixed = np.array([self.nodes - 2, self.nodes - 1])  # source and sink stay
        self.tail = np.concatenate([inner[dear], pulling, np.full(len(wanted), start), unwanted, fixed])
        self.head = np.concatenate([outer[dear], pulled, wanted, np.full(len(unwanted), goal), [goal, goal]])
        always = np.full(len(pulling), _NEVER)
        self.room = np.concatenate([excess[dear], always, -weight[wanted], weight[unwanted], [_NEVER, _NEVER]])

    def moved(self) -> np.ndarray:
        """Return the nodes that move in the best way; none where nothing gains."""
        solver = max_flow.SimpleMaxFlow()
        solver.add_arcs_with_capacity(self.tail, self.head, self.room)
        start = self.nodes
        solver.solve(start, start + 1)
        if solver.optimal_flow() >= self.room[self.tail == start].sum():
            return np.zeros(0, np.int64)
        side = np.array(solver.get_source_side_min_cut(), np.int64)
        return side[side < start]
