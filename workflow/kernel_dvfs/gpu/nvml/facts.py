"""What a study must know of a GPU before it measures: identity, clocks that can be asked for, size."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

from kernel_dvfs.errors import InputError
from kernel_dvfs.shape import FILLED, AtLeastOne, Is

if TYPE_CHECKING:
    from kernel_dvfs.gpu.nvml.board import Board
    from kernel_dvfs.gpu.nvml.library import Library

# SMs are not told by NVML, CUDA cores are: cores of an SM, and threads that it holds, by compute capability
_CORES_PER_SM = {7: 64, 8: 128, 9: 128, 10: 128, 12: 128}
_THREADS_PER_SM: dict[tuple[int, int] | int, int] = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, 12: 1536}
_VOLTA, _AMPERE = (7, 0), (8, 0)
_Ascending: TypeAlias = Annotated[
    list[Annotated[int, Is("a whole number of MHz", lambda value: value > 0)]],
    Is("clocks in MHz, ascending", lambda value: value == sorted(value)),
]


_Listed: TypeAlias = dict[str, Annotated[_Ascending, FILLED]]


class _CoreClocks(TypedDict):
    # {memory clock: core clocks beside it}
    listed: Annotated[_Listed, Is("memory clocks in MHz", lambda value: all(map(str.isdecimal, value)))]


class _Clocks(TypedDict):
    core_mhz: _CoreClocks
    mem_mhz: _Ascending


class Facts(TypedDict):
    """What `facts` tells of a GPU, as far as a study is planned by it."""

    name: str
    uuid: Annotated[str, Is("letters, digits and hyphens", re.compile(r"[\w-]+").fullmatch)]
    pci_bus_id: str
    driver: str
    vbios: str | None
    power_limit_mw: int | None
    ecc: bool | None
    compute_capability: str
    sm_count: AtLeastOne
    threads_per_sm: AtLeastOne
    energy_scope: str
    clocks: Annotated[
        _Clocks,
        Is(
            "core clocks for each memory clock",
            lambda value: {str(each) for each in value["mem_mhz"]} <= value["core_mhz"]["listed"].keys(),
        ),
    ]


def facts(nvml: Library, board: Board) -> dict[str, Any]:
    """The `gpu` group of a setup, as far as the board tells it: plain values, fit for JSON.

    Raises InputError for a GPU that cannot be measured at all.
    """
    capability = board.compute_capability()
    if capability < _VOLTA:
        raise InputError(
            f"{board.name()} ({board.uuid}): GPUs before Volta have neither an energy counter nor clocks to lock; "
            "measure on a newer one, or configure a simulated GPU"
        )
    cores_per_sm = 64 if capability == _AMPERE else _CORES_PER_SM.get(capability[0], 128)
    return {
        "name": board.name(),
        "uuid": board.uuid,
        "pci_bus_id": board.pci_bus_id(),
        "driver": nvml.versions["driver"],
        "vbios": board.vbios(),
        "power_limit_mw": board.power_limit_mw(),
        "ecc": board.ecc(),
        "compute_capability": "{}.{}".format(*capability),
        "sm_count": board.core_count() // cores_per_sm,
        "threads_per_sm": _THREADS_PER_SM.get(capability) or _THREADS_PER_SM.get(capability[0], 2048),
        "energy_scope": energy_scope(board.name()),
        "clocks": clocks(board.supported_mhz(), mem_lock=capability >= _AMPERE),
    }


def clocks(supported_mhz: dict[int, list[int]], mem_lock: bool) -> dict[str, Any]:
    """The `clocks` group of a setup (gpu.clocks), from {memory clock: [core clocks]} in MHz.

    mem_mhz is empty where memory clocks cannot be locked, and everything is where the driver lists no clocks.
    """
    return {
        "core_mhz": {"listed": {str(mem): cores for mem, cores in supported_mhz.items()}},
        "mem_mhz": list(supported_mhz) if mem_lock else [],
    }


def energy_scope(name: str) -> str:
    """What the energy counter counts: Grace Hopper's covers CPU and memory of the module."""
    return "module" if re.search(r"GH200|GB200|Grace", name) else "board"


def slug(facts: dict[str, Any]) -> str:
    """The name of the results folder: `nvidia-h200-1a2b3c4d`."""
    name = re.sub(r"[^a-z0-9]+", "-", facts["name"].lower()).strip("-")
    return f"{name}-{facts['uuid'].removeprefix('GPU-')[:8]}"
