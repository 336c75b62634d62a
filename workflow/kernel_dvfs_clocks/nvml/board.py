"""One GPU through NVML, by UUID: what it is, its clocks, its sensors; and which GPU is meant by a UUID or an index.

Every method of a Board is one question or one request, with the unit in its name; none decides anything.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kernel_dvfs_clocks.clocks import is_number
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml.library import NvmlError, Unsupported

if TYPE_CHECKING:
    from kernel_dvfs_clocks.nvml.library import Library

# of nvml.h; the bindings' names for them have moved, the numbers have not
_CLOCK_SM, _CLOCK_MEM = 1, 2
_SENSOR_GPU = 0
_FIELD_POWER_CAP, _FIELD_THERMAL, _FIELD_SYNC_BOOST = 74, 75, 76
# field values say their type by number: double, unsigned int, unsigned long, unsigned long long, long long, int
_VALUE_OF_TYPE = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}


class Board:
    """The GPU with a UUID. Raises nvml.library.NvmlError, also later, from any method."""

    def __init__(self, nvml: Library, uuid: str) -> None:
        self._nvml, self.uuid = nvml, uuid
        self._handle = nvml.call("nvmlDeviceGetHandleByUUID", uuid, gpu=uuid)

    def _get(self, name: str, *arguments: Any) -> Any:
        return self._nvml.call(f"nvmlDevice{name}", self._handle, *arguments, gpu=self.uuid)

    def _maybe(self, name: str, *arguments: Any) -> Any:
        """Return the answer, or None where this GPU or driver has none."""
        try:
            return self._get(name, *arguments)
        except Unsupported:
            return None

    # --- what it is ---------------------------------------------------------------------------------------------------

    def name(self) -> str:
        return self._get("GetName")

    def index(self) -> int:
        return self._get("GetIndex")

    def minor(self) -> int:
        """Return the number in the name of its device node, /dev/nvidia<minor>: often not the index."""
        return self._get("GetMinorNumber")

    def count(self) -> int:
        """Return how many GPUs the driver shows, this one among them."""
        return self._nvml.call("nvmlDeviceGetCount")

    def pci_bus_id(self) -> str:
        bus_id = self._get("GetPciInfo").busId
        return bus_id.decode() if isinstance(bus_id, bytes) else bus_id

    def vbios(self) -> str | None:
        """Return its version; None where the driver does not tell."""
        return self._maybe("GetVbiosVersion")

    def power_limit_mw(self) -> int | None:
        """Return the limit in force; None where there is none."""
        return self._maybe("GetEnforcedPowerLimit")

    def power_management_limit_mw(self) -> int | None:
        """Return the limit that was set; None where there is none. A lower one from elsewhere may be in force."""
        return self._maybe("GetPowerManagementLimit")

    def power_limits_mw(self) -> tuple[int, int] | None:
        """Return (lowest, highest) that can be set; None where none can."""
        limits = self._maybe("GetPowerManagementLimitConstraints")
        return None if limits is None else (limits[0], limits[1])

    def limit_power(self, limit_mw: int) -> None:
        self._get("SetPowerManagementLimit", limit_mw)

    def ecc(self) -> bool | None:
        """Return whether ECC is on; None where there is none."""
        mode = self._maybe("GetEccMode")
        return None if mode is None else bool(mode[0])

    def mig(self) -> bool:
        """Return whether the GPU is divided into slices."""
        mode = self._maybe("GetMigMode")
        return bool(mode and mode[0])

    def persistence(self) -> bool | None:
        """Return whether the driver stays loaded without a client; None where it does not tell."""
        mode = self._maybe("GetPersistenceMode")
        return None if mode is None else bool(mode)

    def compute_capability(self) -> tuple[int, int]:
        """Return (major, minor)."""
        major, minor = self._get("GetCudaComputeCapability")
        return major, minor

    def core_count(self) -> int:
        """Return how many CUDA cores it has."""
        return self._get("GetNumGpuCores")

    # --- clocks -------------------------------------------------------------------------------------------------------

    def supported_mhz(self) -> dict[int, list[int]]:
        """Return {memory clock: [core clocks, ascending]}, memory ascending, MHz; {} where the driver lists none."""
        listed = self._maybe("GetSupportedMemoryClocks") or []
        return {mem: sorted(self._maybe("GetSupportedGraphicsClocks", mem) or []) for mem in sorted(listed)}

    def sm_mhz(self) -> int:
        """Return the core clock now."""
        return self._get("GetClockInfo", _CLOCK_SM)

    def mem_mhz(self) -> int:
        """Return the memory clock now."""
        return self._get("GetClockInfo", _CLOCK_MEM)

    def lock_core(self, lowest_mhz: int, highest_mhz: int) -> None:
        self._get("SetGpuLockedClocks", lowest_mhz, highest_mhz)

    def lock_mem(self, lowest_mhz: int, highest_mhz: int) -> None:
        self._get("SetMemoryLockedClocks", lowest_mhz, highest_mhz)

    def reset_core(self) -> None:
        self._get("ResetGpuLockedClocks")

    def reset_mem(self) -> None:
        self._get("ResetMemoryLockedClocks")

    # --- sensors ------------------------------------------------------------------------------------------------------

    def energy_mj(self) -> int:
        """Return the energy since the driver was loaded."""
        return self._get("GetTotalEnergyConsumption")

    def power_mw(self) -> int | None:
        """Return the power reading; some boards show the mean of the last second, others the present. None: there is
        none."""
        return self._maybe("GetPowerUsage")

    def temperature_c(self) -> int:
        if self._nvml.has("nvmlDeviceGetTemperatureV"):
            try:
                return self._get("GetTemperatureV", _SENSOR_GPU)
            except Unsupported:
                pass  # a driver older than the binding
        return self._get("GetTemperature", _SENSOR_GPU)

    def event_reasons(self) -> int:
        """Return NVML's bits of why the clocks are not higher, now."""
        if self._nvml.has("nvmlDeviceGetCurrentClocksEventReasons"):
            try:
                return self._get("GetCurrentClocksEventReasons")
            except Unsupported:
                pass
        return self._get("GetCurrentClocksThrottleReasons")

    def throttled(self) -> tuple[int | None, int | None, int | None]:
        """Return cumulative (power cap ns, thermal, sync boost ns) since the driver was loaded; None each where
        unknown.

        Fields 74 to 76 have had these numbers in every driver; those of the other slowdowns have moved between
        bindings, so they are left alone.
        """
        values = self._maybe("GetFieldValues", [_FIELD_POWER_CAP, _FIELD_THERMAL, _FIELD_SYNC_BOOST])
        if values is None:
            return None, None, None
        cap_ns, thermal, sync_boost_ns = (
            int(getattr(field.value, _VALUE_OF_TYPE.get(field.valueType, "ullVal"))) if field.nvmlReturn == 0 else None
            for field in values
        )
        return cap_ns, thermal, sync_boost_ns

    # --- who else -----------------------------------------------------------------------------------------------------

    def compute_processes(self) -> int | None:
        """Return how many processes compute on it; None where the driver does not tell. Not which: in a container, ids
        are the host's."""
        return self._processes("Compute")

    def graphics_processes(self) -> int | None:
        """Return how many processes draw on it; None where the driver does not tell."""
        return self._processes("Graphics")

    def _processes(self, kind: str) -> int | None:
        for name in (f"Get{kind}RunningProcesses_v3", f"Get{kind}RunningProcesses"):
            processes = self._maybe(name)
            if processes is not None:
                return len(processes)
        return None


# --- which one is meant -----------------------------------------------------------------------------------------------


def by_index(nvml: Library) -> dict[int, str | NvmlError]:
    """Return {NVML's index: UUID of the GPU, or why it does not answer}: one that is lost must not hide the others."""
    gpus: dict[int, str | NvmlError] = {}
    for index in range(nvml.call("nvmlDeviceGetCount")):
        try:
            handle = nvml.call("nvmlDeviceGetHandleByIndex", index, gpu=f"GPU {index}")
            gpus[index] = nvml.call("nvmlDeviceGetUUID", handle, gpu=f"GPU {index}")
        except NvmlError as error:
            gpus[index] = error
    return gpus


def answering(gpus: dict[int, str | NvmlError]) -> list[str]:
    """Return the UUIDs of the GPUs that answer, in the driver's order, of `by_index`."""
    return [uuid for uuid in gpus.values() if isinstance(uuid, str)]


def uuids(nvml: Library) -> list[str]:
    """Return the UUIDs of the GPUs that answer, in the driver's order."""
    return answering(by_index(nvml))


def resolve(nvml: Library, which: str) -> Board:
    """Return the GPU that `which` names: a UUID, an index, or nothing where it can be only one. Raises InputError."""
    if which.startswith("MIG-"):
        raise InputError(f"gpu nvml:{which}: energy is counted per board, not per MIG slice; name the whole GPU")
    gpus = by_index(nvml)
    known = answering(gpus)
    listed = "; ".join(f"{index}: {uuid}" for index, uuid in gpus.items()) or "none"
    if not which:
        only = _visible(known) if len(known) != 1 else known
        if len(only) != 1:
            raise InputError(f"gpu nvml: there are {len(gpus)} GPUs; name one, nvml:INDEX or nvml:UUID, of {listed}")
        return Board(nvml, only[0])
    named = gpus.get(int(which)) if is_number(which) else None
    if isinstance(named, NvmlError):
        raise named
    if named:
        return Board(nvml, named)
    if which not in known:
        raise InputError(f"gpu nvml:{which}: no such GPU here; there are {listed}")
    return Board(nvml, which)


def _visible(known: list[str]) -> list[str]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names by UUID: a batch system's choice."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [uuid for uuid in known if any(name.startswith("GPU-") and uuid.startswith(name) for name in named)]
