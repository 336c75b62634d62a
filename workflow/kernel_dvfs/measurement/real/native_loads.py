"""Kernels and passes of a workload as plans of the CUDA extension, on the GPU with a given UUID."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, Any, TypeVar

from kernel_dvfs.measurement.real.clock_probe import probe_mhz
from kernel_dvfs.measurement.real.gemm_algorithms import GemmAlgorithms, instance, path_of
from kernel_dvfs.measurement.target import iteration
from kernel_dvfs.native.load import library_sha256, load
from kernel_dvfs.native.passing import Marked, Passing, marked_pass, quick, room_for
from kernel_dvfs.native.plans import pass_groups, pass_of, row_plan
from kernel_dvfs.native.steady import Steady
from kernel_dvfs.workload.passes import launch_order
from kernel_dvfs.workload.workload import rows_of
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import compact_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType

    from kernel_dvfs.measurement.setup import Setup
    from kernel_dvfs.measurement.target import MeasurementTarget

_Built = TypeVar("_Built")

# memory that a stamper reads to keep DRAM busy, over the size of the L2 cache
_FAR_ABOVE_CACHE = 16
# working set of a probe of memory, twice in one that copies: far above any cache
_PROBED_BYTE = 4 << 30
# where tensors begin, session after session: so many places, an odd number of the 2 MB apart that a GPU maps at a time
_PLACES, _PLACE_BYTE = 8, 7 << 21


class NativeLoads:
    """All loads of one GPU (loads.Loads), by the CUDA extension. Raises InputError where CUDA opens another GPU."""

    now_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    clock_mhz = staticmethod(probe_mhz)

    def __init__(self, uuid: str) -> None:
        # before CUDA is opened: its index 0 is then the GPU that NVML knows by this UUID
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid
        self._cuda, self._library_sha256 = load("cuda"), library_sha256("cuda")
        self._device = self._cuda.Device(0)
        self._info = self._device.info()
        if self._info["uuid"] != uuid:
            raise InputError(f"CUDA opened GPU {self._info['uuid']}, NVML holds {uuid}; unset CUDA_VISIBLE_DEVICES")
        self._moves = 0
        self._forget()

    @property
    def facts(self) -> dict[str, Any]:
        """Versions of CUDA and cuBLASLt, checksum of the extension."""
        versions = {"cuda_runtime": self._info["runtime"], "cublaslt": self._info["cublaslt"]}
        return versions | {"library_sha256": self._library_sha256}

    def _forget(self) -> None:
        """Give the device's memory back."""
        self._plans: dict[str, Any] = {}
        self._arena: Any = None
        self._owner = ""  # digest of the setup whose plans these are
        self._iteration: NativeIteration | None = None

    def _take(self, setup: Setup) -> None:
        """Turn to the workload of a setup."""
        if self._owner != setup.digest:
            self._forget()
            self._rows = _rows(setup, self._info)
            self._algorithms = GemmAlgorithms(path_of(setup.gpu["slug"]), self._info["cublaslt"])
            self._owner = setup.digest

    def move(self) -> bool:
        """Give all memory back, and leave some unused before what is prepared from now on.

        How long most kernels that wait for memory take depends on where their tensors lie: on an H100 by 0.07 to 0.26 %
        (standard deviation), and hardly more from process to process: experiments/results/gpu_sessions_h100.txt.
        """
        self._moves += 1
        self._forget()
        return True

    def chooses(self, setup: Setup, target: MeasurementTarget) -> bool:
        """Return whether to prepare a target means to choose an algorithm, which is to be done at default clocks."""
        self._take(setup)
        if setup.measurement["gemm_algorithm"] != "timed":
            return False
        products = [self._rows[name] for name in _row_names(setup, target) if self._rows[name].gemm]
        return any(self._algorithms.known(row.settings) is None for row in products)

    def prepare(self, setup: Setup, target: MeasurementTarget) -> NativeLoad:
        """Return the load of a target. Its plans stay in memory for later targets; where memory is short, they all go
        first.

        Raises InputError where the target does not fit by itself either.
        """
        return self._fitted(setup, f"{target.study}/{target.name}", lambda at: self._build(setup, target, at))

    def iteration(self, setup: Setup) -> NativeIteration:
        """Return the whole iteration of a setup (loads.IterationLoad); whatever was prepared goes where memory is
        short.

        Raises InputError where it does not fit by itself either.
        """
        self._take(setup)
        if self._iteration is None:
            steps = iteration(setup)
            names = [name for name, _ in steps]
            plans = self._fitted(setup, "iteration", lambda at: self._plans_of(setup, names, at))
            self._iteration = NativeIteration(self._cuda, self._device, plans, steps)
        return self._iteration

    def _fitted(self, setup: Setup, what: str, build: Callable[[int], _Built]) -> _Built:
        """Return what `build` makes, given how many bytes of the device's memory to leave unused first. Where that does
        not fit, all that was prepared goes. Raises InputError where it does not fit by itself either."""
        self._take(setup)
        try:
            return build(self._moves % _PLACES * _PLACE_BYTE)
        except self._cuda.OutOfMemory:
            self._forget()
            self._take(setup)
        try:
            return build(0)
        except self._cuda.OutOfMemory as error:
            raise InputError(f"{what}: {error}; configure a smaller batch") from None

    def stamper(self, step_s: float, room: int, reads: bool) -> Any:
        """Return the kernel that stamps (loads.Stamper)."""
        byte = _FAR_ABOVE_CACHE * self._info["l2_byte"] // 16 * 16 if reads else 0
        try:
            return self._cuda.Stamper(self._device, step_ns=round(1e9 * step_s), room=room, byte=byte)
        except (self._cuda.OutOfMemory, self._cuda.ShapeError) as error:
            raise InputError(f"latency: {error}") from None

    def probe(self, kind: str) -> tuple[NativeLoad, int]:
        """Return a load that keeps the memory busy (loads.Probing); what was prepared before is forgotten."""
        self._forget()
        arena = self._cuda.Arena(self._device)
        try:
            probe = self._cuda.EnergyProbe(arena, kind, byte=_PROBED_BYTE)
        except self._cuda.OutOfMemory as error:
            raise InputError(f"{kind}: {error}") from None
        probe.run(1)
        work = probe.info()
        return NativeLoad(self._cuda, self._device, probe, {kind: probe}), work["read_byte"] + work["write_byte"]

    def _build(self, setup: Setup, target: MeasurementTarget, offset_byte: int) -> NativeLoad:
        plans = self._plans_of(setup, _row_names(setup, target), offset_byte)
        if target.study == "kernel":
            return NativeLoad(self._cuda, self._device, plans[target.name], plans)
        steps = [tuple(step) for step in setup.targets["pass"][target.name]]
        return NativeLoad(self._cuda, self._device, pass_of(self._cuda, plans, steps), plans)

    def _plans_of(self, setup: Setup, names: Iterable[str], offset_byte: int) -> dict[str, Any]:
        if self._arena is None:
            self._arena = self._cuda.Arena(self._device, offset_byte=offset_byte)
        return {name: self._plan(setup, name) for name in names}

    def _plan(self, setup: Setup, name: str) -> Any:
        if name not in self._plans:
            options = setup.workload
            plan = row_plan(
                self._cuda,
                self._arena,
                self._rows[name],
                options["model"],
                options["tensor_parallel"],
                algorithm=setup.measurement["gemm_algorithm"],
                choices=self._algorithms,
                zipf_exponent=options["token_ids_zipf"],
            )
            plan.run(1)
            self._plans[name] = plan
        return self._plans[name]


class NativeLoad:
    """A target ready to run (loads.Load): a plan, or a pass of `plans`. run_s: about how long one run takes."""

    less = None

    def __init__(self, cuda: ModuleType, device: Any, runnable: Any, plans: dict[str, Any]) -> None:
        self._cuda, self._device, self._runnable, self._plans = cuda, device, runnable, plans
        self._plan = runnable if runnable in plans.values() else None
        self.run_s = 1e-3 * runnable.time(1)
        self._checksum = self._plan.checksum() if self._plan else None
        self._by_graph: bool | None = None

    @property
    def about(self) -> dict[str, Any]:
        """The record's `kernel` group, besides the names."""
        instances = {name: _instance(plan.info()) for name, plan in self._plans.items()}
        about = {"dtype": "bf16", "by_graph": self._by_graph}
        if self._plan is None:
            names = hashlib.sha256(compact_json(instances).encode()).hexdigest()[:12]
            return about | {"instance": f"pass {names}"}
        info = self._plan.info()
        (kernel,) = instances.values()
        return about | {"shape": info["shape"], "instance": kernel, "working_set_bytes": info["tensor_byte"]}

    def start(self) -> Steady:
        """Start to run it over and over."""
        steady = Steady(self._cuda, self._device, self._runnable)
        self._by_graph = steady.by_graph
        return steady

    def check(self) -> None:
        """Raise InputError where running it has changed what it computes. The rows of a pass are checked as kernels."""
        if self._plan and self._plan.checksum() != self._checksum:
            what = self._plan.info().get("shape", "probe")
            raise InputError(f"{what}: its results changed while it ran; the GPU cannot be trusted")


class NativeIteration:
    """A whole iteration ready to run (loads.IterationLoad), of `plans` by steps (target.iteration)."""

    def __init__(self, cuda: ModuleType, device: Any, plans: dict[str, Any], steps: Sequence[tuple[str, int]]) -> None:
        self._cuda, self._device, self._plans = cuda, device, plans
        names, groups = launch_order(steps), pass_groups(steps)
        marks = cuda.TimeMarks(device, room_for(len(names)))
        unit = marked_pass(cuda, marks, [([plans[name] for name in ids], repeat) for ids, repeat in groups])
        self._marked = Marked(cuda, device, marks, quick(device, unit), names)
        # from here on it computes the same again and again, and so does each plan by itself
        self._checksums = {name: plan.checksum() for name, plan in plans.items()}
        self._rounds: dict[tuple[tuple[str, int], ...], NativeLoad] = {}

    def start(self, settle_s: float, pass_s: float) -> Passing:
        """See loads.IterationLoad."""
        return Passing(self._marked, settle_s, pass_s)

    def round(self, counts: Mapping[str, int]) -> NativeLoad:
        """See loads.IterationLoad."""
        key = tuple(counts.items())
        if key not in self._rounds:
            plans = {name: self._plans[name] for name in counts}
            whole, *others = plans.values()
            if others:
                whole = self._cuda.Pass([([plans[name]], count) for name, count in counts.items()])
            self._rounds[key] = NativeLoad(self._cuda, self._device, whole, plans)
        return self._rounds[key]

    def check(self) -> None:
        """See loads.IterationLoad."""
        for name, plan in self._plans.items():
            if plan.checksum() != self._checksums[name]:
                raise InputError(f"{name}: its results changed while it ran; the GPU cannot be trusted")


def _instance(info: dict[str, Any]) -> str:
    """Return which kernel runs, in words: records of one row that differ in this cannot be compared."""
    return instance(info) if "algorithm_id" in info else info["operation"]


def _row_names(setup: Setup, target: MeasurementTarget) -> list[str]:
    """Return the rows that a target runs."""
    if target.study == "kernel":
        return [target.name]
    return [name for name, _ in setup.targets["pass"][target.name]]


def _rows(setup: Setup, info: dict[str, Any]) -> dict[str, Any]:
    """Return {id: row} of the setup's workload on the GPU that CUDA sees."""
    rows = {row.id: row for row in rows_of(setup.workload, info["sm_count"], info["threads_per_sm"])}
    if rows.keys() != setup.targets["kernel"].keys():
        raise InputError(
            f"CUDA sees {info['sm_count']} SMs of {info['threads_per_sm']} threads, another size than the workload "
            "was made for; configure bias_split: table1"
        )
    return rows
