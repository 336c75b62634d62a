"""The records of points under one folder, each read, checked and hashed once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json
from kernel_dvfs.gpu.clocks import Pair
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.point import Judged, Reached, Summary
from kernel_dvfs.measurement.request import Request, path
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.measurement.verdict import Verdict


class Point(TypedDict):
    """What a profile is pooled from."""

    summary: Summary
    reached: Reached
    verdict: Verdict
    session: str | None  # the process of a real GPU, else None


def point_of(found: Judged, session: str | None = None) -> Point:
    """A point without what no profile needs."""
    return {"summary": found["summary"], "reached": found["reached"], "verdict": found["verdict"], "session": session}


@dataclass(frozen=True, slots=True)
class _Read:
    point: Point
    instance: str | None  # the kernel that ran, as the record names it
    library: str | None  # SHA-256 of the library that it came from; of a real GPU only


class Records:
    """Points of a setup, read from `folder` (kernel/ and pass/) when they are first asked for.

    expected: {path below the folder: SHA-256} of the only records that may be read, byte for byte; None: any.
    checksums: the same of all that was read so far.
    """

    def __init__(self, setup: Setup, folder: str, expected: Mapping[str, str] | None = None):
        self.checksums: dict[str, str] = {}
        self._setup, self._folder, self._expected = setup, folder, expected
        self._read: dict[str, _Read] = {}
        self._libraries: dict[str, str] = {}  # {checksum: a record that ran it}

    def points(self, target: Target) -> Callable[[Pair, int], Point]:
        """point(pair, repeat) of a target: what profile.aggregate.columns asks for.

        Raises InputError naming a record that is missing, damaged, foreign or not as expected, or that ran another
        kernel than the target's other records or came from another build than all other records.
        """
        ran: dict[str | None, str] = {}  # {what a record says that it ran: a file that says so}

        def point(pair: Pair, repeat: int) -> Point:
            name = path(Request(*target, *pair, ()), repeat)
            found, file = self._get(name, target, pair), f"{self._folder}/{name}"
            ran.setdefault(found.instance, file)
            if len(ran) > 1:
                (one, its), (other, others) = list(ran.items())[:2]
                raise InputError(
                    f"{target.study}/{target.name}: {its} ran {one}, but {others} ran {other}, and a profile compares "
                    "clocks, not kernels; delete the records of one of them and run snakemake again"
                )
            if found.library:
                self._libraries.setdefault(found.library, file)
            if len(self._libraries) > 1:
                one, other = list(self._libraries.values())[:2]
                raise InputError(
                    f"{one} and {other} ran kernels of different builds (device.library_sha256), and a profile "
                    "compares clocks, not builds; delete the records of one of them and run snakemake again"
                )
            return found.point

        return point

    def has(self, target: Target, pair: Pair, repeat: int, library: str = "") -> bool:
        """Whether the record is there, of this setup, and ran kernels of `library` (a SHA-256; "": of any).

        Raises InputError naming a record that is there but damaged or foreign.
        """
        name = path(Request(*target, *pair, ()), repeat)
        try:
            os.stat(f"{self._folder}/{name}")
        except FileNotFoundError:
            return False
        except OSError:
            pass  # reading it says why
        try:
            found = self._get(name, target, pair)
        except InputError:
            if self._is_of_another_setup(name):
                return False
            raise
        if library and found.library and found.library != library:
            # it will be measured again
            del self._read[name], self.checksums[name]
            return False
        return True

    def _is_of_another_setup(self, name: str) -> bool:
        """Whether a record was measured under another protocol, or on the GPU as it was: it will be measured again."""
        try:
            setup = read_json(f"{self._folder}/{name}")["run"]["setup"]
        except (OSError, ValueError, KeyError, TypeError):
            return False  # damaged
        return isinstance(setup, str) and setup != self._setup.digest

    def _get(self, name: str, target: Target, pair: Pair) -> _Read:
        if name not in self._read:
            self._read[name] = self._load(name, target, pair)
        return self._read[name]

    def _load(self, name: str, target: Target, pair: Pair) -> _Read:
        file = f"{self._folder}/{name}"
        held = _bytes(file)
        checksum = None if held is None else hashlib.sha256(held).hexdigest()
        if self._expected is not None and checksum is not None and self._expected.get(name) != checksum:
            what = "was changed since the search read it" if name in self._expected else "the search did not read it"
            raise InputError(f"record {file}: {what}; run snakemake again: it searches again")
        content = record.read_point(file, self._setup, target, pair, held=held)
        point = point_of(content, content["run"].get("run_id"))
        found = _Read(point, content["kernel"].get("instance"), content["device"].get("library_sha256"))
        if checksum is not None:
            self.checksums[name] = checksum
        return found


def _bytes(file: str) -> bytes | None:
    """What a file holds; None where it cannot be read, which reading it as a record will tell."""
    try:
        with open(file, "rb", buffering=0) as content:
            return content.read()
    except OSError:
        return None


def changed(folder: str, checksums: Mapping[str, str]) -> list[str]:
    """The paths below a folder whose files are gone or have other bytes than their checksums say."""
    held = ((name, checksum, _bytes(f"{folder}/{name}")) for name, checksum in checksums.items())
    return [name for name, checksum, own in held if own is None or hashlib.sha256(own).hexdigest() != checksum]
