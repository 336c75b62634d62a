"""Which algorithm each matrix product runs on a GPU: chosen once, then kept beside the GPU's results and always reused.

If the algorithm were chosen again at another clock, by another process or on another day, a sweep would compare
different kernels. Knows the settings of products and the bytes that pin an algorithm; no CUDA.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json, write_json

SCHEMA = "kernel-dvfs/gemm-algorithms/1"
_FILE = "gemm_algorithms.json"
# the fields that tell one algorithm of cuBLASLt from another
_MARKS = (
    *("algorithm_id", "tile_id", "stages_id", "split_k", "reduction_scheme", "swizzle", "custom_option"),
    *("inner_shape_id", "cluster_shape_id"),
)


def path_of(slug: str, results: str = "results") -> str:
    """The file of the GPU whose results folder is called `slug`."""
    return os.path.join(results, slug, _FILE)


def instance(info: dict[str, Any]) -> str:
    """An algorithm in words, from `info()` of a GEMM's plan."""
    return "cublaslt " + " ".join(f"{name.removesuffix('_id')}={info[name]}" for name in _MARKS)


class GemmAlgorithms:
    """The algorithms in a file for one version of cuBLASLt. Raises InputError where the file is damaged."""

    def __init__(self, path: str, cublaslt: int) -> None:
        self._path, self._version = path, str(cublaslt)
        try:
            content = read_json(path)
        except FileNotFoundError:
            content = {"schema": SCHEMA, "cublaslt": {}}
        except ValueError as error:
            raise self._damaged(error) from None
        try:
            if content["schema"] != SCHEMA:
                raise self._damaged(f"not a {SCHEMA} file")
            self._content = content
            self._pinned = {
                key: base64.b64decode(each["pinned"], validate=True)
                for key, each in content["cublaslt"].setdefault(self._version, {}).items()
            }
        except (KeyError, TypeError, AttributeError, ValueError, binascii.Error) as error:
            raise self._damaged(repr(error)) from None

    def known(self, settings: dict[str, Any]) -> bytes | None:
        """The bytes that pin the algorithm of a product; None where none has been chosen yet."""
        return self._pinned.get(_key(settings))

    def keep(self, settings: dict[str, Any], info: dict[str, Any]) -> None:
        """Write down what was chosen for a product, before anything is measured with it. info: of its plan."""
        key = _key(settings)
        self._pinned[key] = info["pinned"]
        entry = {"instance": instance(info), "chosen_by": info["algorithm_chosen_by"]}
        entry["pinned"] = base64.b64encode(info["pinned"]).decode()
        self._content["cublaslt"][self._version][key] = entry
        write_json(self._path, self._content)

    def _damaged(self, why: object) -> InputError:
        return InputError(
            f"{self._path}: {why}; delete it: algorithms are then chosen again, and records of others are refused"
        )


def _key(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={settings[name]}" for name in sorted(settings))
