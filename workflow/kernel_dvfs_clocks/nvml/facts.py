"""What a study must know of a GPU before it measures: identity, clocks that can be asked for, size.

Asked of the driver, or, away from the GPU, as it was when the GPU was last looked at. So results can be read anywhere,
and a study can be planned on the login node of a cluster.

Each GPU is a specimen of its own: two boards of one type have two folders, named by their UUIDs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

from kernel_dvfs_clocks.environment import slurm_gpu
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_json, write_text
from kernel_dvfs_clocks.nvml.board import resolve
from kernel_dvfs_clocks.nvml.library import Library
from kernel_dvfs_clocks.shape import FILLED, AtLeastOne, Is, Part, read

if TYPE_CHECKING:
    from kernel_dvfs_clocks.nvml.board import Board

# SMs are not told by NVML, CUDA cores are: cores of an SM, and threads that it holds, by compute capability
_CORES_PER_SM = {7: 64, 8: 128, 9: 128, 10: 128, 12: 128}
_THREADS_PER_SM: dict[tuple[int, int] | int, int] = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, 12: 1536}
_VOLTA, _AMPERE = (7, 0), (8, 0)
_FILE = "gpu.json"
_NODE = "node.json"

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
    uuid: Part
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
            lambda value: {str(mhz) for mhz in value["mem_mhz"]} <= value["core_mhz"]["listed"].keys(),
        ),
    ]


class _KeptFacts(Facts):
    # the file may come from elsewhere, and both become parts of paths and of commands
    slug: Part


class _Node(TypedDict):
    node: Part  # of an option of sbatch, which takes more than one


def facts(nvml: Library, board: Board) -> dict[str, Any]:
    """Return the `gpu` group of a setup, as far as the board tells it: plain values, fit for JSON.

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
    """Return the `clocks` group of a setup (kernel_dvfs_clocks.clocks), from {memory clock: [core clocks]} in MHz.

    mem_mhz is empty where memory clocks cannot be locked, and everything is where the driver lists no clocks. A memory
    clock beside which it lists no core clock is none that could be asked for.
    """
    listed = {mem: cores for mem, cores in supported_mhz.items() if cores}
    return {
        "core_mhz": {"listed": {str(mem): cores for mem, cores in listed.items()}},
        "mem_mhz": list(listed) if mem_lock else [],
    }


def energy_scope(name: str) -> str:
    """Return what the energy counter counts: Grace Hopper's covers CPU and memory of the module."""
    return "module" if re.search(r"GH200|GB200|Grace", name) else "board"


def slug(facts: dict[str, Any]) -> str:
    """Return the name of the results folder: `nvidia-h200-1a2b3c4d`."""
    name = re.sub(r"[^a-z0-9]+", "-", facts["name"].lower()).strip("-")
    return f"{name}-{facts['uuid'].removeprefix('GPU-')[:8]}"


def known_facts(which: str, results: str) -> dict[str, Any]:
    """Return facts and slug of the GPU that `which` (UUID, index or nothing) names. Raises InputError.

    Where there is no driver, a UUID is looked up in the results folders (see `keep`). On a cluster only there: what
    the login node has is not what measures.
    """
    if slurm_gpu():
        return _known_away(which, results)
    try:
        with Library() as nvml:
            gpu = facts(nvml, resolve(nvml, which))
    except InputError:
        for kept in _kept(results):
            if which and kept.get("uuid") == which:
                return kept
        raise
    gpu["slug"] = slug(gpu)
    return gpu


def facts_of(which: str) -> dict[str, Any]:
    """Return facts and slug of the GPU that `which` (UUID, index or nothing) names. Raises InputError."""
    with Library() as nvml:
        gpu = facts(nvml, resolve(nvml, which))
    return gpu | {"slug": slug(gpu)}


def kept_as(gpu: dict[str, Any], results: str) -> tuple[str, str]:
    """Return (path, text) of the file that keeps a GPU's facts. Raises InputError where another GPU's lies in its
    place."""
    path = Path(results, gpu["slug"], _FILE)
    before = _read(path) if path.is_file() else None
    if before and before["uuid"] != gpu["uuid"]:
        raise InputError(
            f"two GPUs with one slug: {path.parent} holds results of {before['uuid']}, this one is {gpu['uuid']}; "
            "move that folder elsewhere"
        )
    return str(path), json.dumps(gpu, indent=1, allow_nan=False) + "\n"


def keep(gpu: dict[str, Any], results: str) -> None:
    """Leave the facts in the GPU's results folder. Raises InputError where another GPU has it."""
    path, text = kept_as(gpu, results)
    if not os.path.isfile(path) or Path(path).read_text("utf-8") != text:
        write_text(path, text)


def identify(which: str, results: str) -> dict[str, Any]:
    """Look at the GPU that `which` names on this machine, and keep facts and machine. Raises InputError."""
    gpu = known_facts(which, results)
    keep(gpu, results)
    write_json(Path(results, gpu["slug"], _NODE), {"node": os.environ.get("SLURMD_NODENAME", socket.gethostname())})
    return gpu


def node_of(slug: str, results: str) -> str:
    """Return the node of a cluster that the GPU was identified on; nothing where it was not."""
    try:
        return read(Path(results, slug, _NODE), _Node, "", "look at the GPU again")["node"]
    except InputError:
        return ""  # damaged as well: Slurm then finds a node by itself


def _kept(results: str) -> list[dict[str, Any]]:
    return [_read(path) for path in sorted(Path(results).glob(f"*/{_FILE}"))]


def _read(path: Path) -> dict[str, Any]:
    return {**read(path, _KeptFacts, "", "delete it, and look at the GPU again (kernel-dvfs identify)")}


def _known_away(which: str, results: str) -> dict[str, Any]:
    kept = _kept(results)
    listed = "; ".join(f"nvml:{gpu['uuid']} ({gpu['slug']})" for gpu in kept) or "none"
    matching = [gpu for gpu in kept if which in ("", gpu["uuid"])]
    if not which and len(matching) > 1:
        raise InputError(f"gpu nvml: more than one GPU of the cluster is known; name one of {listed}")
    if not matching:
        if not which:
            raise InputError(
                "gpu nvml: no GPU of the cluster is known; look at one first: kernel-dvfs identify "
                f"--slurm={shlex.quote(slurm_gpu())}"
            )
        raise InputError(
            f"gpu nvml:{which}: not known; known are {listed}; on a cluster an index means nothing, and kernel-dvfs "
            "identify --slurm=OPTIONS makes another GPU known"
        )
    return matching[0]
