"""What a board can deploy where changes of clocks take time: one pair for the run, a pair a pass, launch by launch.

Each way is chosen as the headline is. A path of its choices at ascending time limits is fixed; blocks that did not
choose them play each one beside auto, which shows, from the fastest on, how many of them keep the limit (search.walk);
the best of these is the choice, and more blocks measure it again. Where no board can be played, a choice is claimed
alone, and keeps as much time in reserve as it is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as List
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kernel_dvfs.layout import FREE, LAUNCH, PASS, RUN, STRICT, iteration_name
from kernel_dvfs.measurement.verdict import is_reached
from kernel_dvfs.search import walk
from kernel_dvfs.student import Change, of_sessions
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.sequence import baselines
from kernel_dvfs_deploy.sequence.chains import chain_of
from kernel_dvfs_deploy.sequence.changes import Changes, Timing
from kernel_dvfs_deploy.sequence.programme import Choice, choose_path

if TYPE_CHECKING:
    from kernel_dvfs.choice.schedule_file import Schedule
    from kernel_dvfs.profile.store import Profile
    from kernel_dvfs_deploy.sequence.launches import Pair, Sequence
    from kernel_dvfs_deploy.sequence.played import BlockChange as Block
    from kernel_dvfs_deploy.sequence.played import SimulatedPlayer

# below the limit, percent of time: those that a path's choices are made for, fastest first
RESERVES_PERCENT = (0.6, 0.35, 0.25, 0.18, 0.13, 0.09, 0.06, 0.03, 0.0)
# sessions of the walk, and where they and those that measure again are numbered from: none of them is another's
WALKED = 20
_WALK, _AGAIN = 20_000, 30_000


class ValidationProcedure(NamedTuple):
    """How a choice is shown to keep its limit, and measured again."""

    board: SimulatedPlayer
    over_percent: float  # chance, at most, that it is truly over its limit
    repeats: int  # of measuring it again


class Deployed(NamedTuple):
    """What was chosen of one way; changes in percent of the baseline, negative = less."""

    way: str
    choice: Choice | None  # as claimed; None: all stay at auto, since nothing else was shown to keep the limit
    walked: List[Block] = ()  # in each block that showed it; none where it is claimed alone
    again: List[Block] = ()  # in each block that measured it again

    def _clocks(self, sequence: Sequence, timing: Timing) -> str:
        """Return what is to be set, in words."""
        if self.choice is None:
            return "auto"
        if self.way == LAUNCH:
            assert timing.spreads is not None
            return f"schedules/{iteration_name(timing.spreads[0].median_s)}.json"
        if self.way == RUN:
            return _named(sequence.pairs[self.choice.changes.first])
        return "; ".join(f"{name} {_named(pair)}" for name, pair in by_pass(sequence, self.choice.changes))

    def row(self, sequence: Sequence, timing: Timing, over_percent: float | None) -> dict[str, Any]:
        """As a row of the list. over_percent: of the procedure, None where there was none.

        gap_points: what a better choice of the same kind, of the pairs offered, could save at most by the data that
        chose, its reserve of time included; None where all stay at auto.
        """
        assert timing.spreads is not None
        core, mem = (spread.median_s for spread in timing.spreads)
        costs_s = {
            "latency": core,
            "mem_latency": mem,
            "core_stall": timing.core_stall_s,
            "mem_stall": timing.mem_stall_s,
        }
        base_s, base_j = sequence.baseline_time_s, sequence.baseline_energy_j
        choice = self.choice or Choice(Changes(0, (), ()), base_s, base_j, base_j)
        bound = None
        if over_percent is not None and self.walked:
            time = np.array([block.time for block in self.walked])
            bound = float(time.mean() + walk.margin(len(time), over_percent / 100) * time.std(ddof=1))
        return {
            "way": self.way,
            **{f"{name}_ms": 1e3 * cost_s for name, cost_s in costs_s.items()},
            # one pair for the run changes nothing
            **(dict.fromkeys(("costs", *(f"{name}_ms" for name in costs_s))) if self.way == RUN else {}),
            "time_change_percent": 100 * (choice.time_s / base_s - 1),
            "energy_change_percent": 100 * (choice.energy_j / base_j - 1),
            "gap_points": None if self.choice is None else 100 * choice.gap_j / base_j,
            "changes": len(choice.changes),
            "clocks": self._clocks(sequence, timing),
            "time_bound_percent": bound,
            "again": [list(block) for block in self.again],
        }


def deploy(
    sequence: Sequence,
    timing: Timing,
    slack: float,
    reserve: float = 0.0,
    procedure: ValidationProcedure | None = None,
    alone: int = 0,
) -> list[Deployed]:
    """Return what each way gives at a timing, one pair for the run first.

    slack: fraction of the baseline's time. reserve: likewise, kept free where there is no procedure. alone: how many
    pairs, the last ones, may be held for a whole run and not be mixed with others (offered_pairs).
    """
    if not sequence.pairs:
        return [Deployed(way, None) for way in ((RUN, PASS, LAUNCH) if len(sequence.passes) == 2 else (RUN, LAUNCH))]
    chain = chain_of(sequence, timing)
    mixed = sequence.only(np.arange(len(sequence.pairs) - alone)) if alone else sequence
    of_mixed = chain_of(mixed, timing) if alone and mixed.pairs else chain
    limits = [slack - reserve_percent / 100 for reserve_percent in RESERVES_PERCENT] if procedure else [slack - reserve]
    paths = {RUN: _each_once([baselines.single(sequence, limit) for limit in limits])}
    # where fewer changes do better they are a choice of the finer ways too; fastest first
    if len(sequence.passes) == 2:
        by_pass = [baselines.per_pass(mixed, timing, limit, of_mixed) for limit in limits] if mixed.pairs else []
        paths[PASS] = sorted({*paths[RUN], *_each_once(by_pass)}, key=chain.totals)
    fine: list[Changes] = []
    bound_j = sequence.baseline_energy_j
    if mixed.pairs:
        with suppress(InputError):  # nothing is as fast as auto
            fine, bound_j = choose_path(mixed, timing, limits, of_mixed)
    paths[LAUNCH] = sorted({*paths.get(PASS, paths[RUN]), *fine}, key=chain.totals)
    # every other choice of one pair, or a pair a pass, was compared with
    bounds_j = {way: min((chain.totals(changes)[1] for changes in path), default=0.0) for way, path in paths.items()}
    bounds_j[LAUNCH] = min(bound_j, bounds_j[LAUNCH] or bound_j)
    shown = (
        _walked(paths, slack, procedure) if procedure else {way: dict.fromkeys(path, ()) for way, path in paths.items()}
    )
    best = {
        way: min(choices, key=lambda changes: chain.totals(changes)[1]) for way, choices in shown.items() if choices
    }
    again = _played(best.values(), procedure, _AGAIN, procedure.repeats) if procedure else {}
    return [
        Deployed(
            way,
            Choice(best[way], *chain.totals(best[way]), bounds_j[way]),
            shown[way][best[way]],
            again.get(best[way], ()),
        )
        if way in best
        else Deployed(way, None)
        for way in paths
    ]


def by_pass(sequence: Sequence, changes: Changes) -> list[tuple[str, Pair]]:
    """Return [(pass, its pair)] of a choice of a pair for each pass."""
    wanted = changes.pairs(len(sequence))
    # the first pass begins at the other one's pair, until its own has landed
    ends = [begin for _, begin in sequence.passes[1:]] + [len(sequence)]
    return [(name, sequence.pairs[wanted[end - 1]]) for (name, _), end in zip(sequence.passes, ends)]


def again_of(row: Mapping[str, Any]) -> tuple[Change, Change] | None:
    """Return changes of (time, energy) that measuring a row's choice again gave; None where it was not, or only
    once."""
    if len(row["again"]) < 2:
        return None
    time, energy = (of_sessions([block[index] for block in row["again"]]) for index in (0, 1))
    return time, energy


def _named(pair: Pair) -> str:
    """Return a pair as commands take it."""
    return ",".join("auto" if mhz is None else f"{mhz:g}" for mhz in pair)


def free_row(strict: Schedule) -> dict[str, Any]:
    """Return the row of the strict schedule, a clock for each kernel and changes that cost nothing."""
    costs_ms = dict.fromkeys(("latency_ms", "mem_latency_ms", "core_stall_ms", "mem_stall_ms"), 0.0)
    claimed = {name: strict[name] for name in ("slack_percent", "time_change_percent", "energy_change_percent")}
    bound = strict["walk"]["time_bound_percent"] if strict["walk"] else None
    unknown: dict[str, Any] = {
        "gap_points": None,
        "changes": None,
        "clocks": f"schedules/{STRICT}.json",
        "costs": None,
        "again": [],
    }
    return {"way": FREE, **costs_ms, **claimed, "time_bound_percent": bound, **unknown, "is_default": True}


def offered_pairs(sequence: Sequence, profile: Profile) -> tuple[Sequence, int]:
    """Return the same launches at locked pairs that can be set, and how many of these, the last ones, for a whole run
    alone.

    A pair that some kernel did not reach is one of those: its clock is the governor's and follows from all that runs,
    so it cannot be mixed with others. Of the others, only what some kernel may want.
    """
    names = ("study", "core_mhz", "mem_mhz", "reached_core_mhz", "reached_mem_mhz")
    held: dict[Pair, bool] = {}
    for study, core, mem, *reached in zip(*(profile.table[name].to_pylist() for name in names)):
        if study == "kernel" and core is not None:
            is_held = all(
                asked is None or got is None or is_reached(asked, got) for asked, got in zip((core, mem), reached)
            )
            held[core, mem] = held.get((core, mem), True) and is_held
    mixed, alone = (
        np.array([place for place, pair in enumerate(sequence.pairs) if held.get(pair) is is_held], dtype=np.intp)
        for is_held in (True, False)
    )
    time, energy = sequence.time_s[:, mixed], sequence.energy_j[:, mixed]
    # (P, P) whether one pair is no worse than another for any kernel; of equal ones the first is kept
    no_worse = ((time[:, :, None] <= time[:, None]) & (energy[:, :, None] <= energy[:, None])).all(axis=0)
    beaten = (no_worse & (~no_worse.T | np.triu(no_worse, 1))).any(axis=0)
    return sequence.only(np.concatenate([mixed[~beaten], alone])), len(alone)


def _each_once(path: List[Changes | None]) -> list[Changes]:
    return list(dict.fromkeys(changes for changes in path if changes is not None))


def _walked(
    paths: dict[str, list[Changes]], slack: float, procedure: ValidationProcedure
) -> dict[str, dict[Changes, List[Block]]]:
    """Return {way: {choice: its blocks}} of those of each path that are shown to keep the limit, and to save
    something."""
    played = _played({choice for path in paths.values() for choice in path}, procedure, _WALK, WALKED)
    over = procedure.over_percent / 100
    shown: dict[str, dict[Changes, List[Block]]] = {}
    for way, path in paths.items():
        times = np.array([[block.time for block in played[choice]] for choice in path]).reshape(len(path), WALKED).T
        passed = path[: walk.furthest(times, 100 * slack, over)]
        for changes in passed:
            energy = np.array([block.energy for block in played[changes]])
            if energy.mean() + walk.margin(WALKED, over) * energy.std(ddof=1) < 0:
                shown.setdefault(way, {})[changes] = played[changes]
    return shown


def _played(
    choices: Iterable[Changes], procedure: ValidationProcedure, first: int, count: int
) -> dict[Changes, list[Block]]:
    """Return {choice: its change in each block}; one that several ways have is played once."""
    ordered = sorted(set(choices))
    blocks = [procedure.board.block(first + number, ordered) for number in range(count)]
    return {changes: [block[place] for block in blocks] for place, changes in enumerate(ordered)}
