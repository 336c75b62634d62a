"""The facts of a GPU as a study needs them: asked of the driver, or, away from the GPU, as they were when it was last
looked at. So results can be read anywhere, and a study can be planned on the login node of a cluster.

Each GPU is a specimen of its own: two boards of one type have two folders, named by their UUIDs.
"""

import json
import os
import re
import shlex
import socket
from pathlib import Path
from typing import Annotated, Any, TypedDict

from kernel_dvfs.environment import slurm_gpu
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_json, write_text
from kernel_dvfs.gpu.nvml.board import resolve
from kernel_dvfs.gpu.nvml.facts import Facts, facts, slug
from kernel_dvfs.gpu.nvml.library import Library
from kernel_dvfs.shape import Is, read

_FILE = "gpu.json"
_NODE = "node.json"


class _KeptFacts(Facts):
    # the file may come from elsewhere, and both become parts of paths and of commands
    slug: Annotated[str, Is("letters, digits and hyphens", re.compile(r"[a-z0-9][a-z0-9-]*").fullmatch)]


class _Node(TypedDict):
    node: str


def known_facts(which: str, results: str) -> dict[str, Any]:
    """Facts and slug of the GPU that `which` (UUID, index or nothing) names. Raises InputError.

    Where there is no driver, a UUID is looked up in the results folders (see `keep`). On a cluster only there: what
    the login node has is not what measures.
    """
    if slurm_gpu():
        return _known_away(which, results)
    try:
        with Library() as nvml:
            found = facts(nvml, resolve(nvml, which))
    except InputError:
        for kept in _kept(results):
            if which and kept.get("uuid") == which:
                return kept
        raise
    found["slug"] = slug(found)
    return found


def kept_as(found: dict[str, Any], results: str) -> tuple[str, str]:
    """(path, text) of the file that keeps a GPU's facts. Raises InputError where another GPU's lies in its place."""
    path = Path(results, found["slug"], _FILE)
    before = _read(path) if path.is_file() else None
    if before and before["uuid"] != found["uuid"]:
        raise InputError(
            f"two GPUs with one slug: {path.parent} holds results of {before['uuid']}, this one is {found['uuid']}; "
            "move that folder elsewhere"
        )
    return str(path), json.dumps(found, indent=1, allow_nan=False) + "\n"


def keep(found: dict[str, Any], results: str) -> None:
    """Leave the facts in the GPU's results folder. Raises InputError where another GPU has it."""
    path, text = kept_as(found, results)
    if not os.path.isfile(path) or Path(path).read_text("utf-8") != text:
        write_text(path, text)


def identify(which: str, results: str) -> dict[str, Any]:
    """Look at the GPU that `which` names on this machine, and keep facts and machine. Raises InputError."""
    found = known_facts(which, results)
    keep(found, results)
    write_json(Path(results, found["slug"], _NODE), {"node": os.environ.get("SLURMD_NODENAME", socket.gethostname())})
    return found


def node_of(slug: str, results: str) -> str:
    """The node of a cluster that the GPU was identified on; nothing where it was not."""
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
    listed = "; ".join(f"nvml:{each['uuid']} ({each['slug']})" for each in kept) or "none"
    matching = [each for each in kept if which in ("", each["uuid"])]
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
