"""From nodes, a trace and trials to the record of a step (workload.step.Step). Pure; needs no GPU."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from kernel_dvfs.workload.step import CaptureDevice, Own, SavedMemory, Step, Target, Whole
from kernel_dvfs_step import grouping, names, pace, trace
from kernel_dvfs_step import nodes as node_lists
from kernel_dvfs_step.calls import NOTHING, Faith
from kernel_dvfs_step.grouping import Launch
from kernel_dvfs_step.nodes import Node
from kernel_dvfs_step.trace import Traced
from kernel_dvfs_step.trial import Tried

# the section of what no trace speaks of
UNMARKED = "unmarked"
# kernels that only a call or only its graph runs are worth a word from this share of the step's time on, so many named
_WORTH_A_WORD, _NAMED = 0.01, 3


@dataclass(frozen=True, slots=True)
class Outline:
    """What nodes and a trace say before anything is tried."""

    nodes: Sequence[Node]
    functions: Sequence[str]  # demangled, a node each
    launches: list[Launch]
    classes: list[list[int]]  # places among the launches
    about: list[Traced | None]  # of each launch's main node in a call outside the graph
    sections: list[str]  # of each launch
    times_us: list[float | None]  # of each launch in the step, with what prepares it
    overlap_us: float
    overlapped: frozenset[int]  # launches that ran beside another one
    segments: Sequence[tuple[int, int]]
    call_us: float | None = None  # of all that a call outside the graph runs on the GPU; None: not traced
    noticed: tuple[str, ...] = ()  # what the user should know of it, in words


def outline_of(
    nodes: Sequence[Node],
    functions: Sequence[str],
    segments: Sequence[tuple[int, int]],
    calls: Sequence[Sequence[trace.Event]],
    replays: Sequence[Sequence[Traced]],
    joined: Collection[str] = (),
    neighbours: int = 0,
) -> Outline:
    """Return launches and classes of the nodes. functions: demangled. replays: what each node did in replays of the
    graph.

    joined: see grouping.launches. neighbours: so many other processes computed on the GPU, which makes times longer.
    """
    launches = grouping.launches(nodes, functions, joined)
    called = trace.traced(calls[-1]) if calls else []
    about = trace.matched(functions, called) if calls else [None] * len(nodes)
    sections = _sections(launches, about)
    times_us: list[float | None] = [None] * len(launches)
    overlap_us, beside = 0.0, frozenset[int]()
    noticed: tuple[str, ...] = ()
    if replays:
        node_us = trace.times_us(replays, shortest=neighbours > 0)
        times_us = [math.fsum(node_us[place] for place in launch.nodes) for launch in launches]
        overlap_us, places = trace.overlap(replays[-1])
        beside = frozenset(number for number, launch in enumerate(launches) if set(launch.nodes) & set(places))
        if called:
            noticed = _of_others(*trace.others(called, replays[-1]), math.fsum(node_us))
    classes = grouping.classes(nodes, launches, segments, sections, times_us)
    main = [about[launch.main] for launch in launches]
    call_us = round(math.fsum(kernel.time_us for kernel in called), 3) if called else None
    return Outline(
        *(nodes, functions, launches, classes, main, sections, times_us, overlap_us, beside, segments),
        call_us=call_us,
        noticed=noticed,
    )


def _of_others(in_call: Sequence[trace.Other], in_graph: Sequence[trace.Other], step_us: float) -> tuple[str, ...]:
    """Return in words that a graph runs other kernels than a call of the step; nothing where these are too short to
    matter."""
    call_us, graph_us = (math.fsum(other.time_us for other in ran) for ran in (in_call, in_graph))
    if max(call_us, graph_us) < _WORTH_A_WORD * step_us:
        return ()

    def in_words(ran: Sequence[trace.Other]) -> str:
        text = ", ".join(f"{other.launches} x {names.short(other.name)}" for other in ran[:_NAMED])
        return (text or "none") + (f" and {len(ran) - _NAMED} more" if len(ran) > _NAMED else "")

    return (
        f"its graph runs other kernels than a call of it: {in_words(in_graph)} ({1e-3 * graph_us:.2f} ms) where a call "
        f"runs {in_words(in_call)} ({1e-3 * call_us:.2f} ms); some code asks whether it is being captured, as "
        "transformers does before it leaves an attention mask out; compare what loop and graph take before you replay "
        "it",
    )


def _sections(launches: Sequence[Launch], about: Sequence[Traced | None]) -> list[str]:
    """Return the section of each launch; where no trace speaks of one, that of the launch before it, or of the next one
    that has one."""
    known = [(traced.section if (traced := about[launch.main]) else "") for launch in launches]
    section = next((name for name in known if name), UNMARKED)
    sections = []
    for name in known:
        section = name or section
        sections.append(section)
    return sections


def step(
    name: str,
    source: str,
    date_utc: str,
    device: Mapping[str, Any],
    versions: dict[str, str],
    outline: Outline,
    tried: Sequence[Tried],
    clocks_mhz: Sequence[float] | None,
    whole: dict[str, Any],
    state: SavedMemory,
    by_difference: dict[str, str],
    not_repeated: dict[str, str],
    faith: Faith = NOTHING,
    items: Mapping[str, int] = MappingProxyType({}),
) -> Step:
    """Return the record. device: as the extension tells it. tried: of each class of the outline. clocks_mhz: of each
    launch within the step, None where they were not read. whole: time_us, rebuilt_us, same_bits, deterministic, edges,
    programmatic, and what loop and graph cost, of workload.step.Whole. by_difference, not_repeated: sections that
    cannot be repeated by themselves, and why: in one piece, and in several. items: what one step works on.
    """
    targets = _targets(outline, tried, clocks_mhz)
    order = [0] * len(outline.launches)
    for place, members in enumerate(outline.classes):
        for member in members:
            order[member] = place
    owner = [0] * len(outline.nodes)
    for number, launch in enumerate(outline.launches):
        for node in launch.nodes:
            owner[node] = number
    beside = sorted({order[number] for number in outline.overlapped})
    demangled = {node.function: function for node, function in zip(outline.nodes, outline.functions)}
    return Step(
        name=name,
        source=source,
        checksum=node_lists.checksum(outline.nodes, demangled),
        date_utc=date_utc,
        device=cast("CaptureDevice", {key: value for key, value in device.items() if key != "driver"}),
        versions=versions,
        sections=tuple(dict.fromkeys(outline.sections)),
        targets=tuple(targets),
        order=tuple(order),
        nodes=tuple(owner),
        whole=Whole(
            **whole,
            branches=node_lists.most_unordered(outline.nodes),
            overlap_us=max(0.0, round(outline.overlap_us, 3)),
            overlapped=tuple(targets[place].id for place in beside),
            call_us=outline.call_us,
        ),
        state=state,
        by_difference=by_difference,
        not_repeated=not_repeated,
        frozen=faith.frozen,
        noticed=(*faith.noticed, *outline.noticed),
        items=dict(items),
    )


def whole_of(edges: Sequence[tuple[int, int, bool]]) -> dict[str, Any]:
    """Return what `step` is told of the whole graph where nothing has been measured."""
    unknown: dict[str, Any] = dict.fromkeys(("time_us", "rebuilt_us", "same_bits", "deterministic"))
    return unknown | {"edges": len(edges), "programmatic": sum(early for _, _, early in edges)}


def _targets(outline: Outline, tried: Sequence[Tried], clocks_mhz: Sequence[float] | None) -> list[Target]:
    kernels = _kernels_by_label(outline)
    shown = [_shown(outline, members, kernels) for members in outline.classes]
    ids = names.unique(names.slug(label) for label, _ in shown)
    targets = []
    for target_id, (_, name), members, result in zip(ids, shown, outline.classes, tried):
        launch = outline.launches[members[0]]
        node = outline.nodes[launch.main]
        about = [traced for member in members if (traced := outline.about[member])]
        core_mhz = pace.mean_mhz(clocks_mhz[member] for member in members) if clocks_mhz else math.nan
        times = [time for member in members if (time := outline.times_us[member]) is not None]
        targets.append(
            Target(
                id=target_id,
                kind=node.kind,
                name=name,
                function=outline.functions[launch.main],
                operation=_most(kernel.operation for kernel in about),
                module=_most(kernel.module for kernel in about),
                section=outline.sections[members[0]],
                launches=len(members),
                grid=node.grid,
                block=node.block,
                cluster=node.cluster,
                shared_byte=node.shared_byte,
                digest=grouping.digest(outline.nodes, launch, outline.segments),
                own=tuple(Own(outline.nodes[at].kind, outline.nodes[at].byte) for at in launch.nodes[:-1]),
                flop=_mean(kernel.flop for kernel in about),
                byte=_mean(kernel.byte for kernel in about) if node.kind == "kernel" else float(_moved(node)),
                time_us=round(statistics.fmean(times), 3) if times else None,
                time_sd_us=round(statistics.stdev(times), 3) if len(times) > 1 else None,
                alone_us=None if result.alone_us is None else round(result.alone_us, 3),
                rotated=result.rotated,
                repeatable=result.repeatable,
                reason=result.reason,
                moved_byte=result.moved_byte if result.repeatable == "restored" else 0,
                core_mhz=None if math.isnan(core_mhz) else round(core_mhz, 1),
            )
        )
    return targets


def _moved(node: Node) -> int:
    return node.byte * (2 if node.kind == "copy" else 1)


def _shown(outline: Outline, members: Sequence[int], kernels: Mapping[str, set[str]]) -> tuple[str, str]:
    """Return (what the id is made of, the name for people) of a class."""
    main = outline.launches[members[0]].main
    function = names.short(outline.functions[main])
    label = _most(traced.label for member in members if (traced := outline.about[member]))
    if not label or names.slug(function).startswith(names.slug(label.split()[0])):
        return function, function
    return (label if len(kernels[label]) == 1 else f"{label} {function}"), f"{label} ({function})"


def _kernels_by_label(outline: Outline) -> dict[str, set[str]]:
    by_label: dict[str, set[str]] = defaultdict(set)
    for launch, about in zip(outline.launches, outline.about):
        if about:
            by_label[about.label].add(outline.functions[launch.main])
    return by_label


def _most(values: Any) -> str:
    counted = Counter(value for value in values if value)
    return counted.most_common(1)[0][0] if counted else ""


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
