"""Targets and passes of a captured step as loads: the step is captured once more in this process, and graphs are built
of the nodes of each target.

A target's launches take turns, as many as `kernel-dvfs capture` let take turns, on the data that the last of them meets
in the step. Where a launch changes what it reads, that data is put back before each window; parameters and optimiser
also within a window of what begins where the step does. A kernel that hangs ends this process after a while, and the
clocks are restored as after any death.
"""

from __future__ import annotations

import math
import os
import sys
import time
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_dvfs.measurement.real.clock_probe import probe_mhz
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.native.load import library_sha256, load
from kernel_dvfs.native.passing import Marked, Passing, room_for
from kernel_dvfs.native.steady import Steady
from kernel_dvfs.workload import step as steps
from kernel_dvfs.workload.step import paced_kernel
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import framework, pace
from kernel_dvfs_step.pace import ClockReader
from kernel_dvfs_step.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_dvfs.measurement.setup import Setup
    from kernel_dvfs.workload.step import Step
    from kernel_dvfs_step.living import LivingStep

# a graph of repetitions runs about so long; its launch costs the GPU a few us
_GRAPH_US = 4000.0
_MOST_NODES = 4096
# no batch of launches ended for so long: the kernel hangs
_HUNG_S = 20.0
# the longest that reading the clocks within the step takes, and one try of a rest: beside so many rounds
_CLOCKS_S, _TRY_S, _TRY_ROUNDS = 60.0, 30.0, 100
# what is put back before a window is followed by so much of the load, until clocks and power are the load's again
_SETTLE_S = 0.3


class StepLoads:
    """All loads of a captured step on one GPU (loads.Loads). about: the setup's `workload["step"]`.

    Raises InputError where the step's file is not that of the setup, or where capturing once more gives other launches.
    """

    now_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    clock_mhz = staticmethod(probe_mhz)

    def __init__(self, uuid: str, about: dict[str, str]) -> None:
        # before CUDA is opened: its index 0 is then the GPU that NVML knows by this UUID
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid
        self._step = read_step(about)
        extension, self._library_sha256 = load("graph"), library_sha256("graph")
        opened = framework.open_source(extension, about["code"], is_traced=False)
        opened_uuid = opened.device["uuid"]
        if opened_uuid != uuid:
            raise InputError(f"torch opened GPU {opened_uuid}, NVML holds {uuid}; unset CUDA_VISIBLE_DEVICES")
        self._living, self._versions = opened.living, opened.versions
        check_same(self._step, self._living, about)
        self._clocks_mhz: dict[str, float] = {}  # of each target within the step, once that is asked for
        self._iteration: StepIteration | None = None
        self._dog = Watchdog(lambda what: print(f"{what}: hung; the measuring process ends", file=sys.stderr))

    @property
    def facts(self) -> dict[str, Any]:
        """Versions of CUDA and torch, checksum of the extension and of the step."""
        return facts_of(self._versions, self._library_sha256, self._step.checksum)

    def chooses(self, setup: Setup, target: MeasurementTarget) -> bool:
        """Return False: nothing is chosen, since the step's kernels are what they are."""
        return False

    def move(self) -> bool:
        """Return False: nothing moves, since captured graphs hold the addresses of the step's own tensors. Another
        process has others."""
        return False

    def iteration(self, setup: Setup) -> StepIteration:
        """Return the whole step (loads.IterationLoad)."""
        if self._iteration is None:
            self._iteration = StepIteration(self._living, self._step, self._dog)
        return self._iteration

    def prepare(self, setup: Setup, target: MeasurementTarget) -> StepLoad:
        """Return the load of a target or pass, on the data that it meets in the step."""
        # the step is run up to the target, on which its memory is then looked at
        meet_s = 3 * _HUNG_S + 6e-6 * (self._step.whole.time_us or 0.0)
        name, kernel = f"{target.study}/{target.name}", _kernel(target) if target.study == "pass" else ""
        if kernel and not self._clocks_mhz:
            with self._dog.limit(_CLOCKS_S + 10 * meet_s, name):
                self._clocks_mhz = clocks_within(self._step, self._living)
        paced_mhz = self._clocks_mhz[kernel] if kernel else None
        if paced_mhz is not None and math.isnan(paced_mhz):
            raise InputError(f"{name}: its clock within the step could not be read, so it cannot be paced")
        with self._dog.limit(meet_s, name):
            return StepLoad(self._living, self._step, target, self._dog, meet_s, paced_mhz)


def facts_of(versions: dict[str, str], library_sha256: str, checksum: str) -> dict[str, Any]:
    """Return what a record's `device` group says of a step. versions: of framework.versions."""
    major, _, minor = versions["cuda"].partition(".")
    # as CUDA numbers itself: 13000 for 13.0
    runtime = 1000 * int(major) + 10 * int(minor.partition(".")[0] or 0)
    numbers = {"cuda_runtime": runtime, "torch": versions["torch"]}
    return numbers | {"library_sha256": library_sha256, "step_checksum": checksum}


def read_step(about: dict[str, str]) -> Step:
    """Return the step of a setup. Raises InputError where its file holds another one by now."""
    step = steps.read(about["file"])
    if step.checksum != about["checksum"]:
        raise InputError(f"step {about['file']}: holds {step.checksum}, this study is of {about['checksum']}; "
                         "run snakemake again")  # fmt: skip
    return step


def check_same(step: Step, living: LivingStep, about: dict[str, str]) -> None:
    """Raise InputError where the captured step launches anything else than its record says. about: see StepLoads."""
    if living.checksum == step.checksum:
        return
    code, path = about["code"], about["file"]
    remedy = f"capture it again: kernel-dvfs capture {code} -o {path}"
    number = _first_other(step, living)
    if number is None and step.frozen:
        raise InputError(f"{step.source}: is another step each time it is captured: {step.frozen[0]}")
    if number is None:
        raise InputError(
            f"{code}: launches the kernels of {path} with other values (a rate, a factor, a size); {remedy}"
        )
    what = living.functions[number][:80] if number < len(living.nodes) else "the last ones are missing"
    raise InputError(
        f"{code}: launches other kernels than when {path} was captured (from number {number + 1} of "
        f"{len(living.nodes)}: {what}); {remedy}"
    )


def _first_other(step: Step, living: LivingStep) -> int | None:
    """Return the place of the first node that is not as the record tells it; None where all are, as far as it tells."""
    main = step.main_nodes
    for place, (node, function) in enumerate(zip(living.nodes, living.functions)):
        if place == len(step.nodes):
            return place
        launch = step.nodes[place]
        target = step.targets[step.order[launch]]
        shape = (target.grid, target.block, target.cluster, target.shared_byte)
        launched = (node.grid, node.block, node.cluster, node.shared_byte)
        if main[launch] == place and ((node.kind, function) != (target.kind, target.function) or launched != shape):
            return place
    return len(living.nodes) if len(living.nodes) < len(step.nodes) else None


def clocks_within(step: Step, living: LivingStep) -> dict[str, float]:
    """Return {target: mean core clock of its launches within the step, MHz}, as the GPU is now: the capture may have
    read them on a cooler one."""
    clocks: dict[str, list[float]] = {}
    for place, mhz in zip(step.order, pace.within_step_mhz(living, step.main_nodes)):
        clocks.setdefault(step.targets[place].id, []).append(mhz)
    return {target: pace.mean_mhz(clocks_mhz) for target, clocks_mhz in clocks.items()}


class _Part(NamedTuple):
    """What a target means of the step's nodes."""

    places: list[int]  # of nodes, in order; none: rests alone
    start: int  # place of the node up to which the step is run first, so that they meet their data
    launches: int = 1  # of the target, in one go through the places
    restores: bool = True  # they change what they read, which is put back before each window
    keeps_edges: bool = False  # side by side where the step has them so; otherwise one after the other
    less: _Part | None = None  # see loads.Load
    mains: tuple[int, ...] = ()  # which of the places are launches of the kernel, not what prepares it
    paced_mhz: float | None = None  # they are to rest between two goes, so long that they have this clock
    rest_ns: int = 0  # they rest so long


def _kernel(target: MeasurementTarget) -> str:
    """Return the id of the kernel that a target repeats, paced or not; "" of any other pass."""
    return target.name if target.study == "kernel" else paced_kernel(target.name)


def _part(step: Step, target: MeasurementTarget, paced_mhz: float | None) -> _Part:
    if kernel := _kernel(target):
        about = step.target(kernel)
        members = step.nodes_of(kernel)[: about.rotated]
        places = [place for launch in members for place in launch]
        ends = accumulate(len(launch) for launch in members)
        mains, restores = tuple(end - 1 for end in ends), about.repeatable == "restored"
        return _Part(places, min(members[-1]), len(members), restores, mains=mains, paced_mhz=paced_mhz)
    if target.name in step.by_difference:
        before, places = step.beginnings(target.name)
        return _Part(places, 0, keeps_edges=True, less=_Part(before, 0, keeps_edges=True) if before else None)
    places = step.section_nodes(target.name)
    return _Part(places, places[0], keeps_edges=True)


class StepLoad:
    """A target of a step, ready to run (loads.Load).

    meet_s: the longest that putting its data back may take. paced_mhz: the clock that a paced kernel is to have.
    part: of the nodes, where it is not all that the target is.

    A section that cannot be repeated alone runs with all of the step before it, which is measured as well and taken
    off. To put back what it overwrites instead would need room for all activations, and copies that take as long as the
    section and other power. A paced kernel runs with rests, which are measured as well and taken off (step.pace).
    """

    def __init__(
        self,
        living: LivingStep,
        step: Step,
        target: MeasurementTarget,
        dog: Watchdog,
        meet_s: float = 3 * _HUNG_S,
        paced_mhz: float | None = None,
        part: _Part | None = None,
    ) -> None:
        part = part or _part(step, target, paced_mhz)
        self._living, self._dog, self._name = living, dog, f"{target.study}/{target.name}"
        kernel = _kernel(target)
        self._target = step.target(kernel) if kernel else None
        self._part, self.meet_s = part, meet_s
        self.put_back()
        once = self._graph(1)
        once.run(1)
        once_us = max(1e3 * once.time(1), 0.5)
        if part.paced_mhz:
            self._part = part = self._paced(once_us, part.paced_mhz)
            once_us += 1e-3 * part.rest_ns
        self.less = part.less and StepLoad(living, step, target, dog, meet_s, part=part.less)
        self._repeat = self._rounds(once_us)
        self._loop = self._graph(self._repeat)
        self.launches = part.launches * self._repeat  # of the target, in one run of the graph
        self.run_s = 1e-6 * once_us / part.launches
        # what begins within the step needs the state as it is there, gradients of the user's own for instance
        self._refreshed = living.refreshed(self._loop) if part.restores and part.start == 0 else None
        self._reader: ClockReader | None = None
        if part.mains and part.rest_ns:
            self._reader = ClockReader(living, part.places, part.mains, rest_ns=part.rest_ns)
        self._before = None if part.restores else living.memory.all_hashes()
        self._same_bits: bool | None = None

    def _graph(self, repeat: int) -> Any:
        part = self._part
        if part.rest_ns:
            return self._living.chain(part.places, repeat, part.rest_ns)
        return self._living.loop(part.places, repeat, keep_edges=part.keeps_edges)

    def _rounds(self, once_us: float) -> int:
        nodes = len(self._part.places) + bool(self._part.paced_mhz or self._part.rest_ns)
        most = max(1, _MOST_NODES // nodes)
        return max(1, min(most, round(_GRAPH_US / once_us)))

    def _paced(self, once_us: float, wanted_mhz: float) -> _Part:
        """Return the part with rests that give it this clock; without any where it is as high alone."""

        def rest_ns(share: float) -> int:
            return round(1e3 * once_us * share / (1 - share))

        def mhz(share: float) -> float:
            round_us = once_us / (1 - share)
            self._dog.arm(self.meet_s + _TRY_S + _TRY_ROUNDS * 1e-6 * round_us, self._name)
            if self._part.restores:
                self.put_back()
            part, rounds = self._part, self._rounds(round_us)
            return pace.alone_mhz(self._living, part.places, part.mains, rounds, rest_ns(share))

        share, _ = pace.rest_share(wanted_mhz, mhz)
        self._dog.arm(self.meet_s, self._name)
        part = self._part._replace(rest_ns=rest_ns(share))
        if not part.rest_ns:
            return part
        return part._replace(less=_Part([], part.start, part.launches, restores=False, rest_ns=part.rest_ns))

    def put_back(self) -> None:
        """Bring memory to what the load meets in the step; waits."""
        self._living.meet(self._part.start)
        self._living.device.synchronize()

    @property
    def about(self) -> dict[str, Any]:
        """The record's `kernel` group, besides the names."""
        about: dict[str, Any] = {"dtype": "as captured", "by_graph": True, "same_bits_after": self._same_bits}
        if self._refreshed:
            about["runs_between_restores"] = self._refreshed.every * self._repeat
        target = self._target
        if target is None:
            instance = f"pass of {len(self._part.places)} nodes"
            if self._part.less:
                instance += f" less a pass of {len(self._part.less.places)}"
            return about | {"instance": instance, "repeatable": "restored"}
        shape = f"grid {target.grid}, block {target.block}"
        details: dict[str, Any] = {
            "instance": f"{target.function} {target.digest}",
            "shape": shape,
            "repeatable": target.repeatable,
        }
        if self._part.paced_mhz:
            details |= {"paced_mhz": self._part.paced_mhz, "rest_us": 1e-3 * self._part.rest_ns}
        prepared_by = [f"{node.kind} of {node.byte} B" for node in target.own]
        return about | details | {"rotated": target.rotated, "own": prepared_by}

    def start(self) -> StepRunning:
        """Start to run it over and over."""
        if self.restores:
            with self._dog.limit(self.meet_s, self._name):
                self.put_back()
        with self._dog.limit(_HUNG_S + 20 * self.launches * self.run_s, self._name):
            steady = Steady(self._living.extension, self._living.device, self._refreshed or self._loop)
        return StepRunning(self, steady, self._dog, self._name)

    def own_mhz(self, steady: Steady) -> float | None:
        """Return its clock apart from its rests, while it runs; None where it does not rest. Raises InputError."""
        return self._reader.mean_mhz(steady) if self._reader else None

    @property
    def restores(self) -> bool:
        """Whether data is put back before each window."""
        return self._part.restores

    def check(self) -> None:
        """Put the state back. Raises InputError where any bit of it is not what it was.

        Whether the load left the same bits however often it ran is noted in `about`: that of a target which was
        repeatable twice may still depend on the order of its additions.
        """
        with self._dog.limit(self.meet_s, self._name):
            if self._before is not None:
                self._same_bits = self._before == self._living.memory.all_hashes()
            self._living.memory.check_restored()


class StepRunning:
    """A load that runs (loads.RunningLoad): native.steady on a graph of many launches, each window on the same data."""

    def __init__(self, load: StepLoad, steady: Steady, dog: Watchdog, name: str) -> None:
        self._load, self._steady, self._dog, self._name = load, steady, dog, name
        self._limit_s = _HUNG_S + 20 * load.launches * load.run_s
        self._ended: Any = None
        self._live()

    def _live(self) -> None:
        """Put the end off wherever a batch has ended since."""
        if self._steady.ended != self._ended:
            self._ended = self._steady.ended
            self._dog.arm(self._limit_s, self._name)

    def feed(self) -> None:
        """Queue what is missing."""
        self._steady.feed()
        self._live()

    def run_for(self, duration_s: float) -> None:
        """Run for so long, on data that is put back where that is needed, then forget what ran."""
        if self._load.restores:
            with self._dog.limit(self._load.meet_s + self._limit_s, self._name):
                self._load.put_back()
                self._steady.run_for(max(duration_s, _SETTLE_S))
        else:
            self._steady.run_for(duration_s)
        self._ended = None
        self._live()

    def between(self, start_s: float, end_s: float) -> dict[str, Any]:
        """Return time_us of one launch of the target, launches, sm_mhz."""
        self._dog.arm(self._limit_s, self._name)
        ran = self._steady.between(start_s, end_s)
        return ran | {
            "time_us": ran["time_us"] / self._load.launches,
            "launches": ran["launches"] * self._load.launches,
        }

    def own_mhz(self) -> float | None:
        """Return the clock of the load apart from its rests, None where it does not rest."""
        with self._dog.limit(self._limit_s, self._name):
            return self._load.own_mhz(self._steady)

    def stop(self) -> None:
        """Let what is queued come to its end."""
        with self._dog.limit(self._limit_s, self._name):
            self._steady.stop()


class StepIteration:
    """The step from one launch to the next, ready to run over and over (loads.IterationLoad).

    Its launches run one after the other, so that each has a time of its own, also those that the step lets run side by
    side. What prepares a launch counts as its own.
    """

    def __init__(self, living: LivingStep, step: Step, dog: Watchdog) -> None:
        self._living, self._step, self._dog = living, step, dog
        self._launch_s = 3 * _HUNG_S + 20e-6 * (step.whole.time_us or 0.0)
        # an order that respects every edge; a launch begins with what prepares it
        places = range(len(step.nodes))
        firsts = sorted((step.nodes.index(launch), launch) for launch in range(len(step.order)))
        names = [step.targets[step.order[launch]].id for _, launch in firsts]
        marks = living.extension.TimeMarks(living.device, room_for(len(names)))
        graph = living.timed(places, [first for first, _ in firsts], marks)
        with dog.limit(self._launch_s, "step"):
            refreshed = living.refreshed(graph)
            living.device.synchronize()
        self._marked = Marked(living.extension, living.device, marks, refreshed.run, names)
        self._rounds: dict[tuple[tuple[str, int], ...], StepLoad] = {}

    def start(self, settle_s: float, pass_s: float) -> StepPassing:
        """See loads.IterationLoad."""
        with self._dog.limit(self._launch_s, "step"):
            self._living.memory.restore()
            passing = Passing(self._marked, settle_s, pass_s)
        return StepPassing(passing, self._dog, self._launch_s)

    def round(self, counts: Mapping[str, int]) -> StepLoad:
        """See loads.IterationLoad. Several kernels run on the data that the last of them meets."""
        key = tuple(counts.items())
        if key not in self._rounds:
            kernel = MeasurementTarget("kernel", next(iter(counts)))
            part = None if len(counts) == 1 else self._together(counts)
            meet_s = 3 * _HUNG_S + 6e-6 * (self._step.whole.time_us or 0.0)
            with self._dog.limit(meet_s, "+".join(counts)):
                self._rounds[key] = StepLoad(self._living, self._step, kernel, self._dog, meet_s, part=part)
        return self._rounds[key]

    def _together(self, counts: Mapping[str, int]) -> _Part:
        """Return the last launches of each, in the order of the step."""
        launches = sorted(launch for name, count in counts.items() for launch in self._step.nodes_of(name)[-count:])
        restores = any(self._step.target(name).repeatable == "restored" for name in counts)
        return _Part([place for launch in launches for place in launch], launches[-1][0], restores=restores)

    def check(self) -> None:
        """See loads.IterationLoad."""
        with self._dog.limit(self._launch_s, "step"):
            self._living.memory.check_restored()


class StepPassing:
    """A step that passes (loads.RunningIteration), watched: one that hangs ends this process."""

    def __init__(self, passing: Passing, dog: Watchdog, limit_s: float) -> None:
        self._passing, self._dog, self._limit_s = passing, dog, limit_s
        self.stay, self.settles, self.is_over = passing.stay, passing.settles, passing.is_over
        self._ended = 0
        dog.arm(limit_s, "step")

    def feed(self) -> None:
        """See loads.RunningIteration."""
        self._passing.feed()
        if self._passing.ended != self._ended:
            self._ended = self._passing.ended
            self._dog.arm(self._limit_s, "step")

    def passes(self) -> dict[str, Any]:
        """See loads.RunningIteration."""
        with self._dog.limit(self._limit_s, "step"):
            return self._passing.passes()

    def stop(self) -> None:
        """See loads.RunningIteration."""
        with self._dog.limit(self._limit_s, "step"):
            self._passing.stop()
