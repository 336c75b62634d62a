"""Which algorithm each matrix product runs on a GPU: chosen once, then kept beside the GPU's results and always reused.

If the algorithm were chosen again at another clock, by another process or on another day, a sweep would compare
different kernels. Knows the settings of products and the bytes that pin an algorithm; no CUDA.
"""

from __future__ import annotations

import base64
import os
from typing import Annotated, Any, NotRequired, TypedDict

from kernel_dvfs_clocks.files import write_json
from kernel_dvfs_clocks.shape import Is, read

SCHEMA = "kernel-dvfs/gemm-algorithms/1"
_FILE = "gemm_algorithms.json"
_REMEDY = "delete it: algorithms are then chosen again, and records of others are refused"
# the fields that tell one algorithm of cuBLASLt from another
_MARKS = (
    *("algorithm_id", "tile_id", "stages_id", "split_k", "reduction_scheme", "swizzle", "custom_option"),
    *("inner_shape_id", "cluster_shape_id"),
)


def path_of(slug: str, results: str = "results") -> str:
    """Return the file of the GPU whose results folder is called `slug`."""
    return os.path.join(results, slug, _FILE)


def instance(info: dict[str, Any]) -> str:
    """Return an algorithm in words, from `info()` of a GEMM's plan."""
    return "cublaslt " + " ".join(f"{name.removesuffix('_id')}={info[name]}" for name in _MARKS)


def _is_base64(text: str) -> bool:
    try:
        return text.isascii() and bool(base64.b64decode(text, validate=True))
    except ValueError:
        return False


class _AlgorithmEntry(TypedDict):
    instance: NotRequired[str]
    chosen_by: NotRequired[str]
    pinned: Annotated[str, Is("bytes in base64", _is_base64)]


class _AlgorithmsFile(TypedDict):
    schema: str
    cublaslt: dict[str, dict[str, _AlgorithmEntry]]  # {version: {settings of a product: what was chosen}}


class GemmAlgorithms:
    """The algorithms in a file for one version of cuBLASLt. Raises InputError where the file is damaged."""

    def __init__(self, path: str, cublaslt: int) -> None:
        self._path, self._version = path, str(cublaslt)
        self._content: _AlgorithmsFile = {"schema": SCHEMA, "cublaslt": {}}
        if os.path.exists(path):
            self._content = read(path, _AlgorithmsFile, SCHEMA, _REMEDY)
        chosen = self._content["cublaslt"].setdefault(self._version, {})
        self._pinned = {key: base64.b64decode(entry["pinned"]) for key, entry in chosen.items()}

    def known(self, settings: dict[str, Any]) -> bytes | None:
        """Return the bytes that pin the algorithm of a product; None where none has been chosen yet."""
        return self._pinned.get(_key(settings))

    def keep(self, settings: dict[str, Any], info: dict[str, Any]) -> None:
        """Write down what was chosen for a product, before anything is measured with it. info: of its plan."""
        key = _key(settings)
        self._pinned[key] = info["pinned"]
        self._content["cublaslt"][self._version][key] = {
            "instance": instance(info),
            "chosen_by": info["algorithm_chosen_by"],
            "pinned": base64.b64encode(info["pinned"]).decode(),
        }
        write_json(self._path, self._content)


def _key(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={settings[name]}" for name in sorted(settings))
