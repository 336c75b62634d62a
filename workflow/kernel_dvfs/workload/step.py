"""A captured training step as a workload: the content of step.json, read, checked and written.

A step is a list of *launches* in the order in which the GPU does them. A launch is one kernel with the memsets,
copies and kernels that prepare it, or a memset or copy of its own. Launches that do the same work are one *target*,
which is what is measured and given clocks. The file holds no address of the GPU's memory, so it outlives the process
that captured it; to measure it, the same function is captured once more (`kernel_dvfs_step`), and `checksum` says
whether that gave the same launches.

A study names a step in its setup as `workload["step"] = {"file": path of step.json, "checksum": its checksum}`; its
kernels are the targets of `Step.measured`, by id, and its passes are `Step.passes`.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, NotRequired, TypeAlias, TypedDict

from kernel_dvfs_clocks import shape
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import compact_json, write_json
from kernel_dvfs_clocks.shape import Count, Is, NotNegative

SCHEMA = "kernel-dvfs/step/1"


def _one_of(*known: str) -> Is:
    return Is(f"one of {', '.join(known)}", known.__contains__)


# other: host nodes, child graphs, events: never measured
Kind: TypeAlias = Annotated[str, _one_of("kernel", "memset", "copy", "other")]
# yes: running it again leaves what running it once left. restored: it changes what it reads, so what it wrote is put
# back before each window. no: it cannot be repeated alone, so it stays at auto. untried: captured inside the user's own
# process, where a kernel that hangs could not be killed
Repeatable: TypeAlias = Annotated[str, _one_of("yes", "restored", "no", "untried")]
Id: TypeAlias = Annotated[
    str, Is("a name of lower-case letters, digits and underscores", re.compile(r"[a-z0-9][a-z0-9_]{0,59}").fullmatch)
]
Checksum: TypeAlias = Annotated[str, Is("12 hex digits", re.compile(r"[0-9a-f]{12}").fullmatch)]
Three: TypeAlias = tuple[Count, Count, Count]
WHOLE = "step"  # the pass that is the whole step
# a pass so named, with a target's id behind it: that target alone, with rests that give it its clock of the step
PACED = "paced_"
# what is less of all that runs would drown in the noise of a difference
LEAST_SHARE = 0.05
# which targets are measured paced: of at least this share of the step, and at a clock this far below the highest of
# those, or products
_PACED_SHARE, _HELD_SHARE = 0.01, 0.97
# FLOP a byte of what is a product; torch counts FLOP of additions, too
_DENSE = 16.0
# the clock of a shorter launch is read too coarsely to tell: a GPU's timer may move in steps of 1 us
_CLEAR_US = 20.0
_REMEDY = "capture it again: kernel-dvfs capture FILE.py:FUNCTION -o"


@dataclass(frozen=True, slots=True)
class Own:
    """What prepares a kernel and is measured with it, since without it the kernel does other work."""

    kind: str  # memset, copy or kernel
    byte: Count  # how many it writes; 0 of a kernel


@dataclass(frozen=True, slots=True)
class Target:
    """Launches of a step that do the same work."""

    id: Id  # unique in the step, fit for a file's name
    kind: Kind
    name: str  # short, for tables and figures
    function: str  # the kernel's whole name, demangled; `memset`, `copy` or the node's kind for all else
    operation: str  # torch's operation that launches it (`aten::mm`); "" where no trace says so
    module: str  # the module that calls that operation (`GPT.Block.Linear`); "" where no trace says so
    section: Id  # one of the step's sections
    launches: Count  # in one step
    grid: Three  # blocks; zeros unless it is a kernel
    block: Three  # threads of a block; likewise
    cluster: Three  # blocks of a cluster; zeros: none
    shared_byte: Count  # dynamic shared memory of a block
    digest: str  # 12 hex digits of its parameters that are no addresses; kernels alike in all else differ in this
    own: tuple[Own, ...]  # what prepares it, in order
    flop: NotNegative | None  # operations of one launch, by torch's shapes; None: not known
    byte: NotNegative | None  # B that one launch reads and writes at least, by torch's shapes; None: not known
    time_us: NotNegative | None  # mean of one launch within the step (own memsets included) at auto; None: not traced
    time_sd_us: NotNegative | None  # over the launches of a step; None: not traced, or one launch
    alone_us: NotNegative | None  # time of one launch repeated alone at auto, a look of milliseconds; None: not tried
    rotated: Count  # how many of its launches take turns when it is repeated alone, so that caches are as in the step
    repeatable: Repeatable
    reason: str  # why it is `restored` or `no`, in words; "" otherwise
    moved_byte: Count  # B that one more launch changes, 0 unless `restored`
    core_mhz: NotNegative | None = None  # mean core clock of its launches within the step at auto; None: not measured
    # of one launch repeated alone at auto, as a study has measured it; None: in no study yet
    auto_time_us: NotNegative | None = None
    auto_energy_mj: NotNegative | None = None
    auto_core_mhz: NotNegative | None = None

    @property
    def about(self) -> dict[str, Any]:
        """Return what a setup, and after it a profile and the report, know of it: a field that is named here gets
        there."""
        return {
            "operation": self.operation,
            "module": self.module,
            "step_time_s": None if self.time_us is None else 1e-6 * self.time_us,
            "step_core_mhz": self.core_mhz,
        }


class CaptureDevice(TypedDict):
    """The GPU that a step was captured on."""

    name: str
    uuid: str
    compute_capability: NotRequired[str]
    sm_count: NotRequired[Count]
    l2_byte: NotRequired[Count]
    memory_byte: NotRequired[Count]


@dataclass(frozen=True, slots=True)
class SavedMemory:
    """What was saved of the memory that outlives a step: parameters, optimiser, buffers, inputs."""

    byte: Count  # B in use outside the graph's own memory
    saved_byte: Count  # B saved before the first launch, and put back at the end, bit for bit
    place: str  # device or host
    left_out: str  # why not all of it was saved; "" where all was


@dataclass(frozen=True, slots=True)
class Whole:
    """The step as one graph, at auto."""

    time_us: NotNegative | None  # of one replay of the captured graph, median; None: not measured
    rebuilt_us: NotNegative | None  # the same of the chain rebuilt from its nodes
    same_bits: bool | None  # the rebuilt chain leaves the bits that the captured graph leaves
    deterministic: bool | None  # the captured graph leaves the same bits twice; else same_bits says nothing
    edges: Count  # dependencies between nodes
    programmatic: Count  # of these, ones that let a kernel start before the one before it has ended
    branches: Count  # most nodes that nothing orders: 1 is a chain
    overlap_us: NotNegative  # by how much the times of its launches exceed the time of the step, 0 for a chain
    overlapped: tuple[str, ...]  # ids of targets that ran beside another one in the trace
    # one call as the user's own loop makes it, and one replay of the graph: back to back for seconds, one after the
    # other in one process, by the same clock and the same energy counter; None: not measured
    loop_us: NotNegative | None = None
    loop_j: NotNegative | None = None
    graph_us: NotNegative | None = None
    graph_j: NotNegative | None = None
    # sum of the times of all that one such call runs on the GPU, by its trace: the rest of its time the GPU waits
    call_us: NotNegative | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A captured step. All times are microseconds at auto clocks."""

    name: shape.Part  # for people and folders
    source: str  # FILE.py:FUNCTION as it was given, relative to the working directory; "" where captured in a process
    checksum: Checksum  # of what is captured: launches in order, their functions, shapes and plain parameters
    date_utc: str  # of the capture
    device: CaptureDevice
    versions: dict[str, str]  # torch, cuda, cuda_driver, python, kernel_dvfs
    sections: tuple[Id, ...]  # in order of their first launch; each is a pass, and so names files
    targets: Annotated[tuple[Target, ...], Is("at least one", bool)]  # in order of their first launch
    order: tuple[Count, ...]  # place in `targets` of each launch, in order
    nodes: tuple[Count, ...]  # place in `order` of the launch that each node of the graph belongs to, in order
    whole: Whole
    state: SavedMemory
    # {section that is measured as the difference of two beginnings of the step, with it and without: why not alone}
    by_difference: dict[str, str] = field(default_factory=dict)
    not_repeated: dict[str, str] = field(default_factory=dict)  # {section that cannot be measured either way: why}
    # what a replay repeats that a call changes (a learning rate, a buffer of the host): it must not be played
    frozen: tuple[str, ...] = ()
    noticed: tuple[str, ...] = ()  # what else the user should know of it
    # {what one step works on: how many}, as attributes `tokens` or `samples` of the step say
    items: dict[str, Count] = field(default_factory=dict)

    @property
    def measured(self) -> tuple[Target, ...]:
        """Return what can be repeated alone, and so measured and given clocks."""
        return tuple(target for target in self.targets if target.repeatable != "no")

    @property
    def left_at_auto(self) -> tuple[Target, ...]:
        """Return what cannot be: named in the report with its share of the time."""
        return tuple(target for target in self.targets if target.repeatable == "no")

    @property
    def time_us(self) -> float | None:
        """Sum over all launches of their time in the step; None where it was not traced."""
        times = [target.time_us for target in self.targets]
        if any(time is None for time in times):
            return None
        return math.fsum(target.launches * (target.time_us or 0.0) for target in self.targets)

    @property
    def coverage(self) -> float | None:
        """Share of the traced time that measured targets take, 0 to 1; None where it was not traced."""
        whole_us = self.time_us
        if not whole_us:
            return None
        return math.fsum(target.launches * (target.time_us or 0.0) for target in self.measured) / whole_us

    @property
    def passes(self) -> dict[str, list[tuple[str, int]]]:
        """Each section, and the whole step as `step`: {name: [(id, 1), ...]}, launch by launch, in order.

        A pass is repeated as a whole, so a target that cannot be repeated alone may be in it; a node that is neither
        kernel nor memset nor copy may not, and a pass that holds one is left out, as is a section that can be measured
        neither alone nor by difference.
        """
        passes: dict[str, list[tuple[str, int]]] = {}
        for name in (section for section in (*self.sections, WHOLE) if section not in self.not_repeated):
            launched = [self.targets[place] for place in self.order]
            launched = [target for target in launched if name in (WHOLE, target.section)]
            if all(target.kind != "other" for target in launched):
                passes[name] = [(target.id, 1) for target in launched]
        return passes

    def target(self, target_id: str) -> Target:
        """Return the target of that id. Raises InputError."""
        target = next((target for target in self.targets if target.id == target_id), None)
        if target is None:
            ids = ", ".join(target.id for target in self.targets)
            raise InputError(f"step {self.name}: no target '{target_id}'; it has {ids}")
        return target

    def nodes_of(self, target_id: str) -> list[list[int]]:
        """Return, for each launch of a target, in order, the places of its nodes in the graph: what prepares it,
        itself."""
        place = self.targets.index(self.target(target_id))
        launches: dict[int, list[int]] = {number: [] for number, at in enumerate(self.order) if at == place}
        for node, launch in enumerate(self.nodes):
            if launch in launches:
                launches[launch].append(node)
        return list(launches.values())

    @property
    def main_nodes(self) -> list[int]:
        """Place in the graph of each launch's own node, its last one: those before it prepare it."""
        last = {launch: node for node, launch in enumerate(self.nodes)}
        return [last[launch] for launch in range(len(self.order))]

    def section_nodes(self, name: str) -> list[int]:
        """Return the places of the nodes of a section, or of the whole step, in order."""
        return [
            node for node, launch in enumerate(self.nodes) if name in (WHOLE, self.targets[self.order[launch]].section)
        ]

    @property
    def paced(self) -> list[Target]:
        """Targets that the power cap may hold lower alone, where nothing cooler runs beside them, than in the step, the
        longest first: those whose clock is lower than others' in the step, and matrix products, which draw most, also
        where all of a step has one clock. None where no clock is known."""
        least_us = _PACED_SHARE * (self.whole.time_us or self.time_us or 0.0)
        clear = [target for target in self.targets if (target.time_us or 0.0) >= _CLEAR_US]
        long = [(target, us) for target in clear if (us := target.launches * (target.time_us or 0.0)) >= least_us]
        highest_mhz = max((target.core_mhz or 0.0 for target, _ in long), default=0.0)
        held = [
            (target, us)
            for target, us in long
            if target.repeatable != "no"
            and target.core_mhz
            and (target.core_mhz < _HELD_SHARE * highest_mhz or (target.flop or 0.0) > _DENSE * (target.byte or 0.0))
        ]
        return [target for target, _ in sorted(held, key=lambda pair: -pair[1])]

    def beginnings(self, section: str) -> tuple[list[int], list[int]]:
        """Return the places of the nodes of all launches before a section, and of these and the section, each in order.

        Both begin where the step does, so both run on the data of a step, however often they are repeated; what the
        second one takes longer is the section's. Of a section whose launches no other section's lie between.
        """
        places = [place for place, at in enumerate(self.order) if self.targets[at].section == section]

        def first(count: int) -> list[int]:
            return [node for node, launch in enumerate(self.nodes) if launch < count]

        return first(places[0]), first(places[-1] + 1)


def paced_kernel(name: str) -> str:
    """Return the id of the kernel that a pass of this name is, with rests (Step.paced); "" of any other pass."""
    return name.removeprefix(PACED) if name.startswith(PACED) else ""


def checksum(nodes: Iterable[tuple[str, str, Sequence[int]]]) -> str:
    """Return a checksum of what is captured: 12 hex digits of (kind, function, shape) of every node in order.

    The shape of a kernel is its grid, block, cluster and shared memory, then those of its parameters that are plain
    numbers (step.nodes.values_of); of a memset its bytes and what it writes, of a copy its bytes. So another batch
    size, learning rate or factor gives another checksum; an edited comment in the user's file does not. Addresses are
    left out, and structs, whose padding differs from one capture to the next. The step count of an optimiser that can
    be captured lies in memory, so it is no parameter. A number that a compiler wrote into the code is not seen.
    """
    content = [[kind, function, list(shape)] for kind, function, shape in nodes]
    return hashlib.sha256(compact_json([SCHEMA, content]).encode()).hexdigest()[:12]


def write(path: str | os.PathLike[str], step: Step) -> None:
    """Write a step's file, whole or not at all. Raises InputError where its content does not hold together."""
    content = asdict(step)
    _refuse(os.fspath(path), shape.fault(content, Step) or _disagreement(step))
    # what nobody has measured is not in the file
    later = {part.name for part in fields(Target) if part.default is None}
    content["targets"] = [
        {name: value for name, value in target.items() if value is not None or name not in later}
        for target in content["targets"]
    ]
    write_json(path, {"schema": SCHEMA} | content)


def read(path: str | os.PathLike[str]) -> Step:
    """Return the step in a file. Raises InputError: missing, no step's file, or one that does not hold together."""
    content = shape.read(path, dict[str, Any], SCHEMA, f"{_REMEDY} {os.fspath(path)}", "step")
    del content["schema"]
    return from_content(content, os.fspath(path))


def from_content(content: Any, path: str) -> Step:
    """Return the step that `asdict` made a dict of; `path` is where errors say that it comes from. Raises
    InputError."""
    _refuse(path, shape.fault(content, Step))
    step = shape.made(content, Step)
    _refuse(path, _disagreement(step))
    return step


def _refuse(path: str, wrong: str) -> None:
    if wrong:
        raise InputError(f"step {path}: {wrong}; {_REMEDY} {path}")


def _disagreement(step: Step) -> str:
    """Return the first thing that does not fit the rest, in words; "" where all does."""
    return next(iter(_disagreements(step)), "")


def _disagreements(step: Step) -> Iterable[str]:
    ids = [target.id for target in step.targets]
    if twice := next((name for name, count in Counter(ids).items() if count > 1), None):
        yield f"target {twice} appears twice"
    for name, places, among in (("order", step.order, step.targets), ("nodes", step.nodes, step.order)):
        if wrong := [place for place in places if place >= len(among)]:
            yield f"{name} holds {wrong[0]!r}, which is no place among {len(among)}"
    if len(set(step.nodes)) != len(step.order):
        yield "a launch in order has no node"
    counted = Counter(step.order)
    for place, target in enumerate(step.targets):
        for what in _wrong(step, target, counted[place]):
            yield f"target {target.id}: {what}"
    for name in step.by_difference:
        members = [place for place, at in enumerate(step.order) if step.targets[at].section == name]
        if not members or members[-1] - members[0] != len(members) - 1:
            yield f"by_difference names {name!r}, which is no section in one piece"
    if WHOLE in step.sections:
        yield f"a section is named {WHOLE!r}, which means the whole"
    if paced := [name for name in step.sections if paced_kernel(name)]:
        yield f"section {paced[0]!r} begins with {PACED!r}, which means a kernel with rests; name that range otherwise"
    if unknown := [name for name in step.whole.overlapped if name not in ids]:
        yield f"whole.overlapped names {unknown[0]!r}, which is no target"


def _wrong(step: Step, target: Target, counted: int) -> Iterable[str]:
    if target.repeatable in ("restored", "no") and not target.reason:
        yield f"repeatable is {target.repeatable!r} without a reason"
    if target.kind == "other" and target.repeatable != "no":
        yield "a node that is neither kernel nor memset nor copy cannot be repeated"
    if target.section not in step.sections:
        yield f"section {target.section!r} is not among the step's ({', '.join(step.sections)})"
    if counted != target.launches:
        yield f"{target.launches} launches, and order holds {counted}"
