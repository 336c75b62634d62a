"""Kernels and passes of a workload as plans of the CUDA extension, on the one GPU that has a UUID."""

import hashlib
import os
import time

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import compact_json
from kernel_dvfs.measurement.real.gemm_algorithms import GemmAlgorithms, instance, path_of
from kernel_dvfs.native.load import library_sha256, load
from kernel_dvfs.native.plans import pass_of, row_plan
from kernel_dvfs.native.steady import Steady
from kernel_dvfs.workload.rows import kernel_rows

_ROW_OPTIONS = ("model", "batch", "tensor_parallel", "bias_split", "row_parallel_bias")


class NativeLoads:
    """now_s, sleep: the clock that windows are timed by. chooses(setup, target): whether to prepare it means to choose
    an algorithm, which is to be done at default clocks; prepare(setup, target): a load. facts: for the record."""

    now_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def __init__(self, uuid: str):
        # before CUDA is opened: its index 0 is then the GPU that NVML knows by this UUID
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid
        self._cuda, self._library_sha256 = load("cuda"), library_sha256("cuda")
        self._device = self._cuda.Device(0)
        self._info = self._device.info()
        if self._info["uuid"] != uuid:
            raise InputError(f"CUDA opened GPU {self._info['uuid']}, NVML holds {uuid}; unset CUDA_VISIBLE_DEVICES")
        self._forget()

    @property
    def facts(self) -> dict:
        versions = {"cuda_runtime": self._info["runtime"], "cublaslt": self._info["cublaslt"]}
        return versions | {"library_sha256": self._library_sha256}

    def _forget(self) -> None:
        """Give the device's memory back."""
        self._plans, self._arena, self._owner = {}, None, None

    def _take(self, setup) -> None:
        """Turn to the workload of a setup."""
        if self._owner != setup.digest:
            self._forget()
            self._rows = _rows(setup, self._info)
            self._algorithms = GemmAlgorithms(path_of(setup.gpu["slug"]), self._info["cublaslt"])
            self._owner, self._arena = setup.digest, self._cuda.Arena(self._device)

    def chooses(self, setup, target) -> bool:
        self._take(setup)
        if setup.measurement["gemm_algorithm"] != "timed":
            return False
        products = [self._rows[name] for name in _row_names(setup, target) if self._rows[name].gemm]
        return any(self._algorithms.known(row.settings) is None for row in products)

    def prepare(self, setup, target) -> "NativeLoad":
        """The load of a target. What fits in memory stays for the next; where it does not, all else goes first.

        Raises InputError where it does not fit by itself either.
        """
        self._take(setup)
        try:
            return self._build(setup, target)
        except self._cuda.OutOfMemory:
            self._forget()
            self._owner, self._arena = setup.digest, self._cuda.Arena(self._device)
        try:
            return self._build(setup, target)
        except self._cuda.OutOfMemory as error:
            raise InputError(f"{target.study}/{target.name}: {error}; configure a smaller batch") from None

    def _build(self, setup, target) -> "NativeLoad":
        plans = {name: self._plan(setup, name) for name in _row_names(setup, target)}
        if target.study == "kernel":
            return NativeLoad(self._cuda, self._device, plans[target.name], plans)
        steps = [tuple(step) for step in setup.targets["pass"][target.name]]
        return NativeLoad(self._cuda, self._device, pass_of(self._cuda, plans, steps), plans)

    def _plan(self, setup, name: str):
        if name not in self._plans:
            options, row = setup.workload, self._rows[name]
            timed = bool(row.gemm) and setup.measurement["gemm_algorithm"] == "timed"
            known = self._algorithms.known(row.settings) if timed else None
            plan = row_plan(
                self._cuda,
                self._arena,
                row,
                options["model"],
                options["tensor_parallel"],
                algorithm=known or setup.measurement["gemm_algorithm"],
                zipf_exponent=options["token_ids_zipf"],
            )
            if timed and known is None:
                self._algorithms.keep(row.settings, plan.info())
            plan.run(1)
            self._plans[name] = plan
        return self._plans[name]


class NativeLoad:
    """A plan, or a pass of `plans`. run_s: about how long one run takes; start(): it runs from then on, as
    native.steady.Steady; check(): its results are the same as at first (a pass's rows are checked by themselves)."""

    def __init__(self, cuda, device, runnable, plans: dict):
        self._cuda, self._device, self._runnable, self._plans = cuda, device, runnable, plans
        self._plan = runnable if runnable in plans.values() else None
        self.run_s = 1e-3 * runnable.time(1)
        self._checksum = self._plan.checksum() if self._plan else None
        self._by_graph = None

    @property
    def about(self) -> dict:
        """The record's `kernel` group, beside the names."""
        instances = {name: _instance(plan.info()) for name, plan in self._plans.items()}
        about = {"dtype": "bf16", "by_graph": self._by_graph}
        if self._plan is None:
            names = hashlib.sha256(compact_json(instances).encode()).hexdigest()[:12]
            return about | {"instance": f"pass {names}"}
        info = self._plan.info()
        (own,) = instances.values()
        return about | {"shape": info["shape"], "instance": own, "working_set_bytes": info["tensor_byte"]}

    def start(self) -> Steady:
        steady = Steady(self._cuda, self._device, self._runnable)
        self._by_graph = steady.by_graph
        return steady

    def check(self) -> None:
        """Raises InputError if running it has changed what it computes."""
        if self._plan and self._plan.checksum() != self._checksum:
            raise InputError(
                f"{self._plan.info()['shape']}: its results changed while it ran; the GPU cannot be trusted"
            )


def _instance(info: dict) -> str:
    """Which kernel it is that runs: two records of one row with different ones are not of the same thing."""
    return instance(info) if "algorithm_id" in info else info["operation"]


def _row_names(setup, target) -> list:
    """The rows that a target runs."""
    if target.study == "kernel":
        return [target.name]
    return [name for name, _ in setup.targets["pass"][target.name]]


def _rows(setup, info: dict) -> dict:
    options = setup.workload
    rows = kernel_rows(
        **{key: options[key] for key in _ROW_OPTIONS},
        sm_count=info["sm_count"],
        threads_per_sm=info["threads_per_sm"],
        zipf_exponent=options["token_ids_zipf"],
    )
    found = {row.id: row for row in rows}
    if found.keys() != setup.targets["kernel"].keys():
        raise InputError(
            f"CUDA sees {info['sm_count']} SMs of {info['threads_per_sm']} threads, another size than the workload "
            "was made for; configure bias_split: table1"
        )
    return found
