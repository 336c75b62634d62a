"""A captured training step as a workload: the content of step.json, read, checked and written.

A step is a list of *launches* in the order in which the GPU does them. A launch is one kernel with the memsets,
copies and kernels that prepare it, or a memset or copy of its own. Launches that do the same work are one *target*,
which is what is measured and given clocks. The file holds no address of the GPU's memory, so it outlives the process
that captured it; to measure it, the same function is captured once more (`kernel_dvfs.step`), and `checksum` says
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
from typing import Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import compact_json, read_json, write_json

SCHEMA = "kernel-dvfs/step/1"
KINDS = ("kernel", "memset", "copy", "other")  # other: host nodes, child graphs, events: never measured
# yes: running it again leaves what running it once left. restored: it changes what it reads, so what it wrote is put
# back before each window. no: it cannot be repeated alone, so it stays at auto. untried: captured inside the user's own
# process, where a kernel that hangs could not be killed
REPEATABLE = ("yes", "restored", "no", "untried")
WHOLE = "step"  # the pass that is the whole step
# a pass so named, with a target's id behind it: that target alone, with rests that give it its clock of the step
PACED = "paced_"
# what is less of all that runs would drown in the noise of a difference
LEAST_SHARE = 0.05
# which targets are measured paced: of at least this share of the step, at a clock this far below the highest of those
_PACED_SHARE, _HELD_SHARE = 0.01, 0.97
# the clock of a shorter launch is read too coarsely to tell: a GPU's timer may move in steps of 1 us
_CLEAR_US = 20.0
_ID = re.compile(r"[a-z0-9][a-z0-9_]{0,59}")
_REMEDY = "capture it again: kernel-dvfs capture FILE.py:FUNCTION -o"


@dataclass(frozen=True, slots=True)
class Own:
    """What prepares a kernel and is measured with it, since without it the kernel does other work."""

    kind: str  # memset, copy or kernel
    byte: int  # how many it writes; 0 of a kernel


@dataclass(frozen=True, slots=True)
class Target:
    """Launches of a step that do the same work."""

    id: str  # unique in the step, fit for a file's name
    kind: str  # one of KINDS
    name: str  # short, for tables and figures
    function: str  # the kernel's whole name, demangled; `memset`, `copy` or the node's kind for all else
    operation: str  # torch's operation that launches it (`aten::mm`); "" where no trace says so
    module: str  # the module that calls that operation (`GPT.Block.Linear`); "" where no trace says so
    section: str  # one of the step's sections
    launches: int  # in one step
    grid: tuple[int, int, int]  # blocks; zeros unless it is a kernel
    block: tuple[int, int, int]  # threads of a block; likewise
    cluster: tuple[int, int, int]  # blocks of a cluster; zeros: none
    shared_byte: int  # dynamic shared memory of a block
    digest: str  # 12 hex digits of its parameters that are no addresses; kernels alike in all else differ in this
    own: tuple[Own, ...]  # what prepares it, in order
    flop: float | None  # operations of one launch, by torch's shapes; None: not known
    byte: float | None  # B that one launch reads and writes at least, by torch's shapes; None: not known
    time_us: float | None  # mean time of one launch within the step (own memsets included) at auto; None: not traced
    time_sd_us: float | None  # over the launches of a step; None: not traced, or one launch
    alone_us: float | None  # time of one launch repeated alone at auto, a first look of milliseconds; None: not tried
    rotated: int  # how many of its launches take turns when it is repeated alone, so that caches are as in the step
    repeatable: str  # one of REPEATABLE
    reason: str  # why it is `restored` or `no`, in words; "" otherwise
    moved_byte: int  # B that one more launch changes, 0 unless `restored`
    core_mhz: float | None = None  # mean core clock of its launches within the step at auto; None: not measured
    # of one launch repeated alone at auto, as a study has measured it; None: in no study yet
    auto_time_us: float | None = None
    auto_energy_mj: float | None = None
    auto_core_mhz: float | None = None


@dataclass(frozen=True, slots=True)
class State:
    """What was saved of the memory that outlives a step: parameters, optimiser, buffers, inputs."""

    byte: int  # B in use outside the graph's own memory
    saved_byte: int  # B saved before the first launch, and put back at the end, bit for bit
    place: str  # device or host
    left_out: str  # why not all of it was saved; "" where all was


@dataclass(frozen=True, slots=True)
class Whole:
    """The step as one graph, at auto."""

    time_us: float | None  # of one replay of the captured graph, median; None: not measured
    rebuilt_us: float | None  # the same of the chain rebuilt from its nodes
    same_bits: bool | None  # the rebuilt chain leaves the bits that the captured graph leaves
    deterministic: bool | None  # the captured graph leaves the same bits twice; else same_bits says nothing
    edges: int  # dependencies between nodes
    programmatic: int  # of these, ones that let a kernel start before the one before it has ended
    branches: int  # most nodes that nothing orders: 1 is a chain
    overlap_us: float  # by how much the times of its launches exceed the time of the step, 0 for a chain
    overlapped: tuple[str, ...]  # ids of targets that ran beside another one in the trace


@dataclass(frozen=True, slots=True)
class Step:
    """A captured step. All times are microseconds at auto clocks."""

    name: str  # for people and folders: letters, digits, hyphens
    source: str  # FILE.py:FUNCTION as it was given, relative to the working directory; "" where captured in a process
    checksum: str  # 12 hex digits of what is captured: launches in order, their functions, shapes and plain parameters
    date_utc: str  # of the capture
    device: dict[str, Any]  # name, uuid, compute_capability, sm_count, l2_byte, memory_byte
    versions: dict[str, str]  # torch, cuda, cuda_driver, python, kernel_dvfs
    sections: tuple[str, ...]  # in order of their first launch
    targets: tuple[Target, ...]  # in order of their first launch
    order: tuple[int, ...]  # place in `targets` of each launch, in order
    nodes: tuple[int, ...]  # place in `order` of the launch that each node of the graph belongs to, in order
    whole: Whole
    state: State
    # {section that is measured as the difference of two beginnings of the step, with it and without: why not alone}
    by_difference: dict[str, str] = field(default_factory=dict)
    not_repeated: dict[str, str] = field(default_factory=dict)  # {section that cannot be measured either way: why}

    @property
    def measured(self) -> tuple[Target, ...]:
        """What can be repeated alone, and so measured and given clocks."""
        return tuple(target for target in self.targets if target.repeatable != "no")

    @property
    def left_at_auto(self) -> tuple[Target, ...]:
        """What cannot be: named in the report with its share of the time."""
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
        found: dict[str, list[tuple[str, int]]] = {}
        for name in (each for each in (*self.sections, WHOLE) if each not in self.not_repeated):
            launched = [self.targets[place] for place in self.order]
            launched = [target for target in launched if name in (WHOLE, target.section)]
            if all(target.kind != "other" for target in launched):
                found[name] = [(target.id, 1) for target in launched]
        return found

    def target(self, target_id: str) -> Target:
        """The target of that id. Raises InputError."""
        found = next((target for target in self.targets if target.id == target_id), None)
        if found is None:
            ids = ", ".join(target.id for target in self.targets)
            raise InputError(f"step {self.name}: no target '{target_id}'; it has {ids}")
        return found

    def nodes_of(self, target_id: str) -> list[list[int]]:
        """For each launch of a target, in order, the places of its nodes in the graph: what prepares it, itself."""
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
        """Places of the nodes of a section, or of the whole step, in order."""
        return [
            node for node, launch in enumerate(self.nodes) if name in (WHOLE, self.targets[self.order[launch]].section)
        ]

    @property
    def paced(self) -> list[Target]:
        """Targets that draw so much that their clock is lower than others' in the step, the longest first: alone, where
        nothing cooler runs beside them, the power cap may hold them lower still. None where no clock is known."""
        least_us = _PACED_SHARE * (self.whole.time_us or self.time_us or 0.0)
        clear = [each for each in self.targets if (each.time_us or 0.0) >= _CLEAR_US]
        long = [(each, us) for each in clear if (us := each.launches * (each.time_us or 0.0)) >= least_us]
        highest_mhz = max((each.core_mhz or 0.0 for each, _ in long), default=0.0)
        held = [
            (each, us)
            for each, us in long
            if each.repeatable != "no" and each.core_mhz and each.core_mhz < _HELD_SHARE * highest_mhz
        ]
        return [each for each, _ in sorted(held, key=lambda pair: -pair[1])]

    def beginnings(self, section: str) -> tuple[list[int], list[int]]:
        """Places of the nodes of all launches before a section, and of these and the section, each in order.

        Both begin where the step does, so both run on the data of a step, however often they are repeated; what the
        second one takes longer is the section's. Of a section whose launches no other section's lie between.
        """
        own = [place for place, at in enumerate(self.order) if self.targets[at].section == section]

        def first(count: int) -> list[int]:
            return [node for node, launch in enumerate(self.nodes) if launch < count]

        return first(own[0]), first(own[-1] + 1)


def paced_kernel(name: str) -> str:
    """The id of the kernel that a pass of this name is, with rests (Step.paced); "" of any other pass."""
    return name.removeprefix(PACED) if name.startswith(PACED) else ""


def checksum(nodes: Iterable[tuple[str, str, Sequence[int]]]) -> str:
    """Of what is captured: 12 hex digits of (kind, function, shape) of every node in order.

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
    _check(step, os.fspath(path))
    content = asdict(step)
    # what nobody has measured is not in the file
    later = {each.name for each in fields(Target) if each.default is None}
    content["targets"] = [
        {name: value for name, value in target.items() if value is not None or name not in later}
        for target in content["targets"]
    ]
    write_json(path, {"schema": SCHEMA} | content)


def read(path: str | os.PathLike[str]) -> Step:
    """The step in a file. Raises InputError: missing, no step's file, or one that does not hold together."""
    where = f"step {os.fspath(path)}"
    try:
        content = read_json(path)
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}; {_REMEDY} {os.fspath(path)}") from None
    except ValueError as error:
        raise InputError(f"{where}: {error}; {_REMEDY} {os.fspath(path)}") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise InputError(f"{where}: not a {SCHEMA} file; {_REMEDY} {os.fspath(path)}")
    del content["schema"]
    return from_content(content, os.fspath(path))


def from_content(content: dict[str, Any], path: str) -> Step:
    """The step that `asdict` made a dict of; `path` is where errors say that it comes from. Raises InputError."""
    try:
        step = _step(content)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"step {path}: {_said(error)}; {_REMEDY} {path}") from None
    _check(step, path)
    return step


def _step(content: dict[str, Any]) -> Step:
    whole = dict(content["whole"])
    whole["overlapped"] = tuple(whole["overlapped"])
    targets = []
    for each in content["targets"]:
        each = dict(each)
        each["own"] = tuple(Own(**own) for own in each["own"])
        for shape in ("grid", "block", "cluster"):
            each[shape] = _three(shape, each[shape])
        targets.append(Target(**each))
    lists: dict[str, Any] = {name: tuple(content[name]) for name in ("sections", "order", "nodes")}
    others = {name: value for name, value in content.items() if name not in ("whole", "state", "targets", *lists)}
    return Step(**others, **lists, targets=tuple(targets), whole=Whole(**whole), state=State(**content["state"]))


def _three(name: str, values: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = values
    if not all(isinstance(value, int) and value >= 0 for value in (x, y, z)):
        raise ValueError(f"{name} is {values}, not three whole numbers")
    return x, y, z


def _said(error: Exception) -> str:
    return f"field {error} is missing" if isinstance(error, KeyError) else str(error)


def _check(step: Step, path: str) -> None:
    """Raise InputError at the first thing that does not fit the rest."""

    def refuse(what: str) -> None:
        raise InputError(f"step {path}: {what}; {_REMEDY} {path}")

    if not re.fullmatch(r"[A-Za-z0-9-]+", str(step.name)):
        refuse(f"name is {step.name!r}, not letters, digits and hyphens")
    if not re.fullmatch(r"[0-9a-f]{12}", str(step.checksum)):
        refuse(f"checksum is {step.checksum!r}, not 12 hex digits")
    if not step.targets:
        refuse("it has no targets")
    ids = [target.id for target in step.targets]
    if twice := next((name for name, count in Counter(ids).items() if count > 1), None):
        refuse(f"target {twice} appears twice")
    for name, places, among in (("order", step.order, step.targets), ("nodes", step.nodes, step.order)):
        if wrong := [place for place in places if not _is_place(place, among)]:
            refuse(f"{name} holds {wrong[0]!r}, which is no place among {len(among)}")
    if len(set(step.nodes)) != len(step.order):
        refuse("a launch in order has no node")
    counted = Counter(step.order)
    for place, target in enumerate(step.targets):
        for what in _wrong(step, target, counted[place]):
            refuse(f"target {target.id}: {what}")
    for name in step.by_difference:
        own = [place for place, at in enumerate(step.order) if step.targets[at].section == name]
        if not own or own[-1] - own[0] != len(own) - 1:
            refuse(f"by_difference names {name!r}, which is no section in one piece")
    if WHOLE in step.sections:
        refuse(f"a section is named {WHOLE!r}, which means the whole")
    if paced := [name for name in step.sections if paced_kernel(name)]:
        refuse(
            f"section {paced[0]!r} begins with {PACED!r}, which means a kernel with rests; name that range otherwise"
        )
    if unknown := [name for name in step.whole.overlapped if name not in ids]:
        refuse(f"whole.overlapped names {unknown[0]!r}, which is no target")
    parts: list[Whole | Target] = [step.whole, *step.targets]
    for part in parts:
        for each in fields(part):
            value = getattr(part, each.name)
            numbers = "float" in str(each.type) or each.type == "int"
            if numbers and value is not None and not (_is_number(value) and value >= 0):
                refuse(f"{each.name} is {value!r}, not a number of 0 or more")


def _wrong(step: Step, target: Target, counted: int) -> Iterable[str]:
    if not isinstance(target.id, str) or not _ID.fullmatch(target.id):
        yield "its id is no name of lower-case letters, digits and underscores"
    if target.kind not in KINDS:
        yield f"kind is {target.kind!r}; allowed: {', '.join(KINDS)}"
    if target.repeatable not in REPEATABLE:
        yield f"repeatable is {target.repeatable!r}; allowed: {', '.join(REPEATABLE)}"
    if target.repeatable in ("restored", "no") and not target.reason:
        yield f"repeatable is {target.repeatable!r} without a reason"
    if target.kind == "other" and target.repeatable != "no":
        yield "a node that is neither kernel nor memset nor copy cannot be repeated"
    if target.section not in step.sections:
        yield f"section {target.section!r} is not among the step's ({', '.join(step.sections)})"
    if counted != target.launches:
        yield f"{target.launches} launches, and order holds {counted}"


def _is_place(place: object, among: Sequence[object]) -> bool:
    return isinstance(place, int) and not isinstance(place, bool) and 0 <= place < len(among)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
