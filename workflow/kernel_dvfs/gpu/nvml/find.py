"""Which GPU is meant: by UUID or index, told once and from then on known by its UUID."""

import os

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.nvml.board import Board


def uuids(nvml) -> list:
    """UUIDs of the GPUs that the driver shows, in its order."""
    found = []
    for index in range(nvml.call("nvmlDeviceGetCount")):
        handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
        found.append(nvml.call("nvmlDeviceGetUUID", handle))
    return found


def resolve(nvml, which: str) -> Board:
    """The GPU that `which` names: a UUID, an index, or nothing where it can be only one. Raises InputError."""
    if which.startswith("MIG-"):
        raise InputError(f"gpu nvml:{which}: energy is counted per board, not per MIG slice; name the whole GPU")
    known = uuids(nvml)
    listed = "; ".join(f"{index}: {uuid}" for index, uuid in enumerate(known)) or "none"
    if not which:
        only = _visible(known) if len(known) != 1 else known
        if len(only) != 1:
            raise InputError(f"gpu nvml: there are {len(known)} GPUs; name one, nvml:INDEX or nvml:UUID, of {listed}")
        return Board(nvml, only[0])
    if which.isdecimal() and int(which) < len(known):
        return Board(nvml, known[int(which)])
    matching = [uuid for uuid in known if uuid == which]
    if not matching:
        raise InputError(f"gpu nvml:{which}: no such GPU here; there are {listed}")
    return Board(nvml, which)


def _visible(known: list) -> list:
    """The GPUs that CUDA_VISIBLE_DEVICES names by UUID: a batch system's choice."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [uuid for uuid in known if any(each.startswith("GPU-") and uuid.startswith(each) for each in named)]
