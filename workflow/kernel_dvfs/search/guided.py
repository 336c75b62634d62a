"""The guided search in rounds: profile so far in, requests out.

Kernels are searched, tied launches as one: auto is measured at every copy, any other pair at the first of them that
gives a usable point. Copies that are seen to differ (choice.agreement) are searched each by itself. The few passes are
measured at every pair. Of the setup it reads the names, work and multiplicities of the kernels and the seed, never the
GPU's spec.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernel_dvfs.choice.agreement import apart
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import BASELINE, key_of
from kernel_dvfs.measurement.request import Request
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.search.candidates import Candidates, Context, Seen, seen_of
from kernel_dvfs.search.propose import Options, Proposal
from kernel_dvfs.search.propose import propose as propose_points

_NEEDED = ("study", "target", "core_mhz", "mem_mhz", "time_s", "energy_j", "n", "verdict")


def propose(profile_rows: Mapping[str, list], context: Context, round_number: int) -> list[Request]:
    """The requests of a round; [] when the search is finished.

    profile_rows: {column: list} of the profile so far (profile.store.COLUMNS: one row a target and pair, repeats
    pooled, a clock of None = auto); no rows before anything is measured. context.options: the configuration's
    `guided`. round_number: 1, 2, ...
    Raises InputError where a kernel has no usable baseline, however often it was measured.
    """
    points = _points(profile_rows, context)
    members, candidates = candidates_of(context, _apart(points, context))
    proposal = _proposal(points, context, members, candidates)
    pairs = list(context.pairs)
    asked = []
    for target, pair in proposal.points:
        names, count = members[target], context.options["auto_repeats"]
        if pairs[pair] != BASELINE:
            names, count = [next(name for name in names if (name, pair) not in points)], 1
        asked += [Request("kernel", name, *pairs[pair], tuple(range(count))) for name in names]
    if round_number == 1 and context.options["passes"]:
        for name in context.setup.targets["pass"]:
            for each in pairs:
                count = context.auto_repeats if each == BASELINE else 1
                asked.append(Request("pass", name, *each, tuple(range(count))))
    return asked


def estimate(profile_rows: Mapping[str, list], context: Context) -> dict[str, Any]:
    """What a search knows of its own end, ready for JSON.

    finished, reason; left_percent: energy that pairs not measured are still expected to save, percent of the
    baseline's energy (null before the model is asked), left_high_percent: its 95th percentile; measured: kernel
    measurements made, share_percent of those of an exhaustive search; unfit: kernels that the model does not describe,
    which are measured more often.
    """
    points = _points(profile_rows, context)
    members, candidates = candidates_of(context, _apart(points, context))
    proposal = _proposal(points, context, members, candidates)
    made, all_ = _counts(profile_rows, context)

    def percent(value: float | None) -> float | None:
        return None if value is None else round(100 * value, 4)

    return {
        "finished": not proposal.points,
        "reason": proposal.reason,
        "left_percent": percent(proposal.left),
        "left_high_percent": percent(proposal.left_high),
        "measured": made,
        "share_percent": percent(made / all_),
        "unfit": [members[target][0] for target in proposal.unfit],
    }


def candidates_of(context: Context, separate: frozenset[str] = frozenset()) -> tuple[list[list[str]], Candidates]:
    """(names of the launches of each target, Candidates) of the kernels of a context.

    separate: names that are not tied although they belong to a group of copies.
    """
    classes: dict = {}
    kernels = context.setup.targets["kernel"]
    for name, about in kernels.items():
        group = about["replicate_group"] if context.ties == "tied" and name not in separate else None
        classes.setdefault((None, group) if group else (name, None), []).append(name)
    members = list(classes.values())
    count, pairs = len(members), list(context.pairs)
    first = [kernels[names[0]] for names in members]
    # tensor-core FLOP and DRAM bytes of a launch
    work = tuple((about["work"][1], about["work"][4]) for about in first)
    return members, Candidates(
        targets=tuple(names[0] for names in members),
        pairs=tuple(map(key_of, pairs)),
        offered=np.ones((count, len(pairs)), dtype=bool),
        weight=np.array([sum(kernels[name]["launches_per_iteration"] for name in names) for names in members], float),
        baseline=np.full(count, pairs.index(BASELINE)),
        copies=np.array([len(names) for names in members]),
        work=work,
    )


def _points(profile_rows: Mapping, context: Context) -> dict:
    """{(kernel, index of pair): (n, time_s, energy_j, core and memory clock reached)}, None where it is unusable."""
    kernels = context.setup.targets["kernel"]
    place = {pair: number for number, pair in enumerate(map(key_of, context.pairs))}
    columns = [profile_rows[name] for name in _NEEDED]
    reached = [profile_rows.get(name) or [None] * len(columns[0]) for name in ("reached_core_mhz", "reached_mem_mhz")]
    points = {}
    for study, name, core, mem, time_s, energy_j, n, verdict, *clocks in zip(*columns, *reached, strict=True):
        if study == "kernel" and name in kernels and (core, mem) in place:
            usable = verdict not in UNUSABLE
            points[name, place[core, mem]] = (n, time_s, energy_j, *clocks) if usable else None
    return points


def _apart(points: dict, context: Context) -> frozenset:
    """Kernels that differ from the other copies of their group where both were measured."""
    groups: dict = {}
    for name, about in context.setup.targets["kernel"].items():
        if about["replicate_group"] and context.ties == "tied":
            groups.setdefault(about["replicate_group"], []).append(name)
    time: dict[str, dict[int, float]] = {name: {} for names in groups.values() for name in names}
    energy: dict[str, dict[int, float]] = {name: {} for name in time}
    for (name, pair), point in points.items():
        if point and name in time:
            time[name][pair], energy[name][pair] = point[1:3]
    return frozenset(each.target for each in apart(groups, time, energy))


def _proposal(points: dict, context: Context, members: list[list[str]], candidates: Candidates) -> Proposal:
    candidates, seen = _seen(points, members, candidates)
    given = context.options
    options = Options(
        threshold=given["threshold_percent"] / 100,
        budget=given["budget_percent"] / 100,
        probes=given["probes"],
        draws=given["draws"],
        seed=context.setup.measurement["seed"],
        window_s=context.setup.measurement["windows"] * context.setup.measurement["window_s"],
        baseline_repeats=given["auto_repeats"],
        all_baseline_repeats=context.auto_repeats,
    )
    slacks = sorted({percent / 100 for percent in context.slacks_percent})
    if context.weights in ("raw", "equal-time"):
        candidates = _weighted(candidates, seen, context.weights, members)
    return propose_points(candidates, seen, slacks, options)


def _weighted(candidates: Candidates, seen: Seen, weights: str, members: list) -> Candidates:
    weight = np.array([len(names) for names in members], dtype=float)
    if weights == "equal-time":
        base = seen.pair == candidates.baseline[seen.target]
        time = np.ones(len(members))
        time[seen.target[base]] = seen.time_s[base]
        weight = weight / time
    return replace(candidates, weight=weight)


def _seen(points: dict, members: list, candidates: Candidates) -> tuple[Candidates, Seen]:
    """(candidates without the pairs that proved unusable at every copy, the points measured; auto at every copy)."""
    offered, rows = candidates.offered.copy(), []
    for target, names in enumerate(members):
        for pair in range(len(candidates.pairs)):
            own = [points[name, pair] for name in names if (name, pair) in points]
            usable = [point for point in own if point]
            if pair == candidates.baseline[target]:
                if len(usable) < len(own):
                    spoilt = next(name for name in names if points.get((name, pair), True) is None)
                    raise InputError(
                        f"guided search: kernel {spoilt} has no usable measurement at auto clocks, "
                        "which every saving refers to; delete its record and measure again"
                    )
                if len(usable) < len(names):
                    continue
            offered[target, pair] = bool(usable) or len(own) < len(names)
            if usable:
                rows.append(_pool(target, pair, usable))
    return replace(candidates, offered=offered), seen_of(rows)


def _pool(target: int, pair: int, points: list) -> dict:
    """The mean over the copies of a target that were measured, weighted by measurements."""
    n, time_s, energy_j = (np.array([point[i] for point in points], dtype=float) for i in range(3))

    def clock(i: int) -> float | None:
        values = [point[i] for point in points if point[i] is not None]
        return float(np.mean(values)) if values else None

    return {
        "target": target,
        "pair": pair,
        "time_s": (n * time_s).sum() / n.sum(),
        "energy_j": (n * energy_j).sum() / n.sum(),
        "n": n.sum(),
        "core_mhz": clock(3),
        "mem_mhz": clock(4),
    }


def _counts(profile_rows: Mapping[str, list], context: Context) -> tuple[int, int]:
    """(kernel measurements made, those of an exhaustive search)."""
    made = sum(n for study, n in zip(profile_rows["study"], profile_rows["n"], strict=True) if study == "kernel")
    each = len(context.pairs) - 1 + context.auto_repeats
    return int(made), each * len(context.setup.targets["kernel"])
