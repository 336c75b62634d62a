"""Which algorithm each matrix product runs on a GPU: chosen once, kept beside the GPU's results, the same ever after.

An algorithm that is chosen anew at another clock, by another process or on another day would make a sweep compare
different kernels. Knows settings of products and the bytes that pin an algorithm; no CUDA.
"""

import base64
import binascii
import os

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json, write_json

SCHEMA = "kernel-dvfs/gemm-algorithms/1"
_FILE = "gemm_algorithms.json"
# what tells one algorithm of cuBLASLt from another
_MARKS = (
    *("algorithm_id", "tile_id", "stages_id", "split_k", "reduction_scheme", "swizzle", "custom_option"),
    *("inner_shape_id", "cluster_shape_id"),
)


def path_of(slug: str, results: str = "results") -> str:
    return os.path.join(results, slug, _FILE)


def instance(info: dict) -> str:
    """An algorithm in words, from `info()` of a GEMM's plan."""
    return "cublaslt " + " ".join(f"{name.removesuffix('_id')}={info[name]}" for name in _MARKS)


class GemmAlgorithms:
    """Those of the version `cublaslt` in a file. Raises InputError where the file is damaged."""

    def __init__(self, path: str, cublaslt: int):
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

    def known(self, settings: dict):
        """The bytes that pin the algorithm of a product; None where none has been chosen yet."""
        return self._pinned.get(_key(settings))

    def keep(self, settings: dict, info: dict) -> None:
        """Write down what was chosen, before anything is measured with it."""
        key = _key(settings)
        self._pinned[key] = info["pinned"]
        entry = {"instance": instance(info), "chosen_by": info["algorithm_chosen_by"]}
        entry["pinned"] = base64.b64encode(info["pinned"]).decode()
        self._content["cublaslt"][self._version][key] = entry
        write_json(self._path, self._content)

    def _damaged(self, why) -> InputError:
        return InputError(
            f"{self._path}: {why}; delete it: algorithms are then chosen anew, and records of others are refused"
        )


def _key(settings: dict) -> str:
    return " ".join(f"{name}={settings[name]}" for name in sorted(settings))
