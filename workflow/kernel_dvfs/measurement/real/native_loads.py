"""Kernels and passes of a workload as plans of the CUDA extension, on the one GPU that has a UUID."""

import os
import time

from kernel_dvfs.errors import InputError
from kernel_dvfs.native.load import load
from kernel_dvfs.native.plans import pass_of, row_plan
from kernel_dvfs.native.steady import Steady
from kernel_dvfs.workload.rows import kernel_rows

_ROW_OPTIONS = ("model", "batch", "tensor_parallel", "bias_split", "row_parallel_bias")


class NativeLoads:
    """now_s, sleep: the clock that windows are timed by. prepare(setup, target): a load. facts: for the record."""

    now_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def __init__(self, uuid: str):
        # before CUDA is opened: its index 0 is then the GPU that NVML knows by this UUID
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid
        self._cuda = load("cuda")
        self._device = self._cuda.Device(0)
        self._info = self._device.info()
        if self._info["uuid"] != uuid:
            raise InputError(f"CUDA opened GPU {self._info['uuid']}, NVML holds {uuid}; unset CUDA_VISIBLE_DEVICES")
        self._forget()

    @property
    def facts(self) -> dict:
        return {"cuda_runtime": self._info["runtime"], "cublaslt": self._info["cublaslt"]}

    def _forget(self) -> None:
        """Give the device's memory back."""
        self._plans, self._arena, self._owner = {}, None, None

    def prepare(self, setup, target) -> "NativeLoad":
        """The load of a target. What fits in memory stays for the next; where it does not, all else goes first.

        Raises InputError where it does not fit by itself either.
        """
        if self._owner != setup.digest:
            self._forget()
            self._rows = _rows(setup, self._info)
            self._owner, self._arena = setup.digest, self._cuda.Arena(self._device)
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
        if target.study == "kernel":
            plan = self._plan(setup, target.name)
            return NativeLoad(self._cuda, self._device, plan, plan)
        steps = [tuple(step) for step in setup.targets["pass"][target.name]]
        plans = {name: self._plan(setup, name) for name, _ in steps}
        return NativeLoad(self._cuda, self._device, pass_of(self._cuda, plans, steps), None)

    def _plan(self, setup, name: str):
        if name not in self._plans:
            options = setup.workload
            self._plans[name] = row_plan(
                self._cuda,
                self._arena,
                self._rows[name],
                options["model"],
                options["tensor_parallel"],
                zipf_exponent=options["token_ids_zipf"],
            )
            self._plans[name].run(1)
        return self._plans[name]


class NativeLoad:
    """A plan or a pass. run_s: about how long one run takes; start(): it runs from then on, as native.steady.Steady;
    check(): its results are the same as at first."""

    def __init__(self, cuda, device, runnable, plan):
        self._cuda, self._device, self._runnable, self._plan = cuda, device, runnable, plan
        self.run_s = 1e-3 * runnable.time(1)
        self._checksum = plan.checksum() if plan else None

    @property
    def about(self) -> dict:
        """The record's `kernel` group, beside the names."""
        if self._plan is None:
            return {"dtype": "bf16"}
        info = self._plan.info()
        return {
            "shape": info["shape"],
            "dtype": "bf16",
            "instance": str(info.get("algorithm_id") or info["operation"]),
            "working_set_bytes": info["tensor_byte"],
        }

    def start(self) -> Steady:
        return Steady(self._cuda, self._device, self._runnable)

    def check(self) -> None:
        """Raises InputError if running it has changed what it computes."""
        if self._plan and self._plan.checksum() != self._checksum:
            raise InputError(
                f"{self._plan.info()['shape']}: its results changed while it ran; the GPU cannot be trusted"
            )


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
