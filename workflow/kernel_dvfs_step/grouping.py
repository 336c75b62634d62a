"""From nodes to launches and classes of launches that do the same work.

Three traps decide the rules, each met on an H200. The same function with the same grid is not the same work: cuBLAS's
kernels have as many blocks as the GPU has multiprocessors, whatever the shape, so the parameters' words count as well,
addresses apart. A kernel without the memset that clears its counters is silently another kernel, or hangs, so it keeps
that memset. The same holds of kernels: those of CUB hand counters on from one to the next, cuDNN's prepare a workspace.
And parameters do not tell everything (tensor maps hold shapes and addresses in one), so launches of one
class must also take about the same time in the step. Nor do they tell work alone: a kernel of a recurrent net is given
the number of its time step. Where parameters would make very many classes of one kernel, time alone tells them apart.
What fails alone in spite of all this is joined with the launch before it (`joined`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kernel_dvfs_step.nodes import Node, is_address

# how many kernels may lie between a memset and the kernel that is given what it clears
_REACH = 6
# kernels that keep counters in memory that their parameters do not show: a memset right before them is theirs
_HIDDEN = ("nvjet", "cutlass", "_ZN7cutlass", "sm80_", "sm86_", "sm90_", "sm100_", "cudnn", "void cutlass")
# kernels that go on from the kernel of their kind before them: a run of them is one launch
_RUN = ("cub::",)
# kernels that prepare the next one. Of grouped products the second writes where the factors lie, in memory that torch's
# pool gives away behind the product: without it, the product reads addresses that are none
_PREPARES = ("init_device_workspace", "prepare_grouped_gemm_data")
# kernels whose parameters are a list of tensors, each a bit of the same work: they tell nothing apart
_LISTS = ("multi_tensor_apply_kernel",)
# a copy up to this size prepares a kernel; a larger one is work of its own
_SMALL_COPY_BYTE = 1 << 16
# two launches of one class must be closer than both, or they are of two
_APART_SHARE = 0.25
_APART_US = 2.0
# parameters that would tell more than so many classes of one kernel, launch shape and section apart count its launches:
# a cuDNN GRU had 1,633 classes of 6,311 launches, the steps recorded for tests have 4 of a kernel at most
_MOST_ALIKE = 16


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel with what prepares it, or a memset or copy of its own: places of nodes in order, the main one last."""

    nodes: tuple[int, ...]

    @property
    def main(self) -> int:
        return self.nodes[-1]


def kind_of(node: Node) -> str:
    """Return what a launch that failed alone is told by, from process to process."""
    return f"{node.function} {node.shape}"


def launches(nodes: Sequence[Node], functions: Sequence[str], joined: Collection[str] = frozenset()) -> list[Launch]:
    """Return the launches of a graph, in the order of their main nodes. Every node is in one of them.

    functions: demangled. joined: kinds (kind_of) of kernels that go on from the launch before them.
    """
    owners = _owners(nodes)
    preparing: dict[int, list[int]] = {}
    for place, owner in owners.items():
        preparing.setdefault(owner, []).append(place)
    grouped: list[Launch] = []
    for place in (place for place in range(len(nodes)) if place not in owners):
        parts = [*preparing.get(place, ()), place]
        if grouped and _goes_on(nodes, functions, grouped[-1].main, place, joined):
            parts += grouped.pop().nodes
        grouped.append(Launch(tuple(sorted(parts))))
    return grouped


def _goes_on(nodes: Sequence[Node], functions: Sequence[str], before: int, place: int, joined: Collection[str]) -> bool:
    if nodes[place].kind != "kernel" or nodes[before].kind != "kernel":
        return False
    in_run = any(mark in functions[before] and mark in functions[place] for mark in _RUN)
    is_prepared = any(mark in functions[before] for mark in _PREPARES)
    return in_run or is_prepared or kind_of(nodes[place]) in joined


def _owners(nodes: Sequence[Node]) -> dict[int, int]:
    """Return {place of a memset or small copy: place of the kernel that it prepares}."""
    owners: dict[int, int] = {}
    for place, node in enumerate(nodes):
        if node.kind == "memset" or (node.kind == "copy" and node.byte <= _SMALL_COPY_BYTE and not node.is_host):
            owner = _served(nodes, place)
            if owner is not None:
                owners[place] = owner
    return owners


def _served(nodes: Sequence[Node], place: int) -> int | None:
    """Return the first kernel soon after a memset or copy that is given what it writes; None without one."""
    node = nodes[place]
    given = range(node.address, node.address + max(1, node.byte))
    passed = 0
    for at in range(place + 1, len(nodes)):
        if nodes[at].kind != "kernel":
            continue
        if any(word in given for word in nodes[at].words):
            return at
        if node.kind == "memset" and passed == 0 and nodes[at].function.startswith(_HIDDEN):
            return at
        passed += 1
        if passed == _REACH:
            return None
    return None


def digest(nodes: Sequence[Node], launch: Launch, segments: Sequence[tuple[int, int]]) -> str:
    """Return 12 hex digits of what a launch does, as far as its nodes tell: functions, shapes, words that are no
    addresses."""
    content = []
    for place in launch.nodes:
        node = nodes[place]
        is_list = any(mark in node.function for mark in _LISTS)
        words = ["p" if is_address(word, segments) else word for word in node.words] if not is_list else []
        content.append((node.kind, node.function, node.shape, words, node.is_host))
    return hashlib.sha256(repr(content).encode()).hexdigest()[:12]


def classes(
    nodes: Sequence[Node],
    grouped: Sequence[Launch],
    segments: Sequence[tuple[int, int]],
    sections: Sequence[str],
    times_us: Sequence[float | None],
) -> list[list[int]]:
    """Return the places among `grouped` of the launches of each class, in order of their first launch.

    segments: (address, bytes) of the allocator's memory. sections, times_us: of each launch, its section and its time
    in the step. Launches of two sections are never of one class, so that a section is whole targets.
    """
    kernels: dict[tuple[Any, ...], dict[str, list[int]]] = {}
    for number, launch in enumerate(grouped):
        alike = kernels.setdefault((sections[number], *(kind_of(nodes[place]) for place in launch.nodes)), {})
        alike.setdefault(digest(nodes, launch, segments), []).append(number)
    split: list[list[int]] = []
    for alike in kernels.values():
        members = sorted(member for alike_members in alike.values() for member in alike_members)
        if len(alike) > _MOST_ALIKE and all(times_us[member] is not None for member in members):
            split += _split(members, times_us, within=True)
        else:
            split += [part for alike_members in alike.values() for part in _split(alike_members, times_us)]
    return sorted(split, key=min)


def _split(members: list[int], times_us: Sequence[float | None], within: bool = False) -> list[list[int]]:
    """Return the members of a class, apart where their times in the step disagree: with the next shorter one; within:
    with the shortest of their part, so that a part is of one time though there are launches of every time between
    two."""
    known = [(time, member) for member in members if (time := times_us[member]) is not None]
    if len(known) < len(members):
        return [members]
    known.sort()
    parts = [[known[0][1]]]
    like_us = known[0][0]
    for (before_us, _), (time_us, member) in pairwise(known):
        like_us = like_us if within else before_us
        if time_us - like_us > max(_APART_US, _APART_SHARE * like_us):
            parts.append([])
            like_us = time_us
        parts[-1].append(member)
    return [sorted(part) for part in parts]
