"""The records of points under one folder, each read, checked and hashed once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.point import Judged, ReachedClocks, Summary
from kernel_dvfs.measurement.request import PointRequest, path
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.measurement.verdict import Verdict
from kernel_dvfs_clocks.clocks import Pair
from kernel_dvfs_clocks.errors import InputError


class PooledPoint(TypedDict):
    """What a profile is pooled from."""

    summary: Summary
    reached: ReachedClocks
    verdict: Verdict
    session: str | None  # the process of a real GPU, else None


def point_of(judged: Judged, session: str | None = None) -> PooledPoint:
    """Return a point without what no profile needs."""
    return {
        "summary": judged["summary"],
        "reached": judged["reached"],
        "verdict": judged["verdict"],
        "session": session,
    }


@dataclass(frozen=True, slots=True)
class _Read:
    point: PooledPoint
    instance: str | None  # the kernel that ran, as the record names it
    library: str | None  # SHA-256 of the library that it came from; of a real GPU only


class Records:
    """Points of a setup, read from `folder` (kernel/ and pass/) when they are first asked for."""

    def __init__(self, setup: Setup, folder: str):
        self._setup, self._folder = setup, folder
        self._read: dict[str, _Read] = {}
        self._libraries: dict[str, str] = {}  # {checksum: a record that ran it}

    def points(self, target: MeasurementTarget) -> Callable[[Pair, int], PooledPoint]:
        """Return point(pair, repeat) of a target: what profile.aggregate.columns asks for.

        Raises InputError naming a record that is missing, damaged or foreign, or that ran another kernel
        than the target's other records or came from another build than all other records.
        """
        ran: dict[str | None, str] = {}  # {what a record says that it ran: a file that says so}

        def point(pair: Pair, repeat: int) -> PooledPoint:
            name = path(PointRequest(*target, *pair, ()), repeat)
            read, file = self._get(name, target, pair), f"{self._folder}/{name}"
            ran.setdefault(read.instance, file)
            if len(ran) > 1:
                (kernel, its), (other, others) = list(ran.items())[:2]
                raise InputError(
                    f"{target.study}/{target.name}: {its} ran {kernel}, but {others} ran {other}, and a profile "
                    "compares clocks, not kernels; delete the records of one of them and run snakemake again"
                )
            if read.library:
                self._libraries.setdefault(read.library, file)
            if len(self._libraries) > 1:
                first, other = list(self._libraries.values())[:2]
                raise InputError(
                    f"{first} and {other} ran kernels of different builds (device.library_sha256), and a profile "
                    "compares clocks, not builds; delete the records of one of them and run snakemake again"
                )
            return read.point

        return point

    def _get(self, name: str, target: MeasurementTarget, pair: Pair) -> _Read:
        if name not in self._read:
            self._read[name] = self._load(name, target, pair)
        return self._read[name]

    def _load(self, name: str, target: MeasurementTarget, pair: Pair) -> _Read:
        file = f"{self._folder}/{name}"
        content = record.read_point(file, self._setup, target, pair)
        point = point_of(content, content["run"].get("run_id"))
        return _Read(point, content["kernel"].get("instance"), content["device"].get("library_sha256"))


def _bytes(file: str) -> bytes | None:
    """Return what a file holds; None where it cannot be read, which reading it as a record will tell."""
    try:
        with open(file, "rb", buffering=0) as content:
            return content.read()
    except OSError:
        return None


def changed(folder: str, checksums: Mapping[str, str]) -> list[str]:
    """Return the paths below a folder whose files are gone or have other bytes than their checksums say."""
    held = ((name, checksum, _bytes(f"{folder}/{name}")) for name, checksum in checksums.items())
    return [name for name, checksum, data in held if data is None or hashlib.sha256(data).hexdigest() != checksum]
