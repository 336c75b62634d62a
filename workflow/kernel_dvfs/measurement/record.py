"""Records on disk: one JSON file per point or per comparison, complete or absent, refused where it belongs elsewhere.

The one place that knows the shape of a record file. All units are raw: mJ, us, MHz.

A record carries the checksum of its own content (see files). Records of versions that wrote none are accepted without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict, cast, final

from kernel_dvfs.measurement import consistency
from kernel_dvfs.measurement.consistency import Comparison
from kernel_dvfs.measurement.point import Point
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.measurement.window import ClockProbe, RecordDevice
from kernel_dvfs_clocks.clocks import Pair, label
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import change_of, sealed_json, write_text
from kernel_dvfs_clocks.shape import FILLED, AtLeastOne, Count, NotNegative, fault, read

if TYPE_CHECKING:
    from os import PathLike

    from kernel_dvfs.measurement.campaign import AnyBench

POINT = "kernel-dvfs/point/1"
COMPARISON = "kernel-dvfs/comparison/2"
_REMEDY = (
    "delete it (kernel-dvfs measure records FOLDER/measurements --gpu FOLDER/setup/DIGEST.json --delete-bad finds all "
    "such files) and run snakemake again"
)


class PointRun(TypedDict):
    """Under what a point was measured."""

    setup: str  # digest
    seed: Count
    campaign: str
    repeat: Count
    run_id: NotRequired[str]  # the session of a real GPU


class RecordedKernel(TypedDict):
    """What was measured; a pass has no shape."""

    study: str
    name: str
    workload: str
    shape: NotRequired[str]
    dtype: NotRequired[str]
    instance: NotRequired[str]  # the kernel that ran
    working_set_bytes: NotRequired[Count]
    by_graph: NotRequired[bool | None]


@final
class PointRecord(Point):
    """The record of a point."""

    schema: str
    run: PointRun
    device: RecordDevice
    kernel: RecordedKernel
    sha256: NotRequired[str]


class _RealRun(TypedDict):
    run_id: str
    started_utc: str
    host: str
    boot_id: str
    config_sha256: str
    block: Count
    order: AtLeastOne
    spent_s: _SpentS
    probe: NotRequired[ClockProbe | None]  # null: none was taken


class _SpentS(TypedDict):
    windows: NotNegative
    warm_up: NotNegative
    passes: NotRequired[NotNegative]
    choosing: NotNegative
    preparing: NotNegative
    other: NotNegative


class _RealDevice(TypedDict):
    pci_bus_id: str
    nvml: str
    binding: str
    cuda: str
    vbios: str | None
    ecc: bool | None
    persistence: bool | None


class OfRealGpu(TypedDict):
    """What a real GPU's record holds besides."""

    run: _RealRun
    device: _RealDevice


class _ComparisonRun(TypedDict):
    setup: str
    seed: Count
    schedule: str


@final
class ComparisonRecord(TypedDict):
    """A file of comparisons."""

    schema: str
    run: _ComparisonRun
    device: RecordDevice
    comparisons: Annotated[list[Comparison], FILLED]
    sha256: NotRequired[str]


# --- writing ----------------------------------------------------------------------------------------------------------


def write_point(
    path: str, setup: Setup, bench: AnyBench, target: MeasurementTarget, campaign: str, repeat: int, point: Point
) -> None:
    """Write the record of a point that `bench` (campaign.open_bench) has just measured.

    Raises InputError, and writes nothing, where its numbers do not agree: a reader would refuse it.
    """
    run = {"setup": setup.digest, "seed": setup.measurement["seed"], "campaign": campaign, "repeat": repeat}
    kernel = {"study": target.study, "name": target.name, "workload": setup.workload["name"]}
    content = {
        "schema": POINT,
        "run": run | bench.run,
        "device": bench.device,
        "kernel": kernel | bench.kernel,
        **point,
    }
    if wrong := consistency.of_point(cast("PointRecord", content)):
        raise InputError(f"record {path}: not written: {wrong}; measure the point again")
    _write(path, content, bench.device)


def write_comparison(
    path: str, setup: Setup, device: RecordDevice, schedule: str, comparisons: list[Comparison]
) -> None:
    """Write interleaved comparisons of auto and chosen clocks.

    schedule: what the clocks were chosen by, a path or the clocks. Raises InputError, and writes nothing, where their
    numbers do not agree: a reader would refuse them.
    """
    content: ComparisonRecord = {
        "schema": COMPARISON,
        "run": {"setup": setup.digest, "seed": setup.measurement["seed"], "schedule": schedule},
        "device": device,
        "comparisons": comparisons,
    }
    if wrong := _disagreement(content):
        raise InputError(f"record {path}: not written: {wrong}; measure the comparison again")
    _write(path, content, device)


def _write(path: str, content: Mapping[str, Any], device: RecordDevice | None = None) -> None:
    write_text(path, sealed_json(content) + "\n", durable=device is not None and device["kind"] == "nvml")


# --- reading: raises InputError naming a file that is missing, truncated, changed or foreign --------------------------


def read_point(
    path: str, setup: Setup, target: MeasurementTarget, pair: Pair, repeat: int | None = None, held: bytes | None = None
) -> PointRecord:
    """Return the record of one point, as `write_point` wrote it.

    A record is foreign if it is of another setup, target, clock pair or repeat. repeat: None takes it from a file name
    r<repeat>.json. held: what the file holds, where it has been read already.
    """
    content = read(path, PointRecord, POINT, _REMEDY, "record", "run snakemake again", held)
    if content["device"]["kind"] == "nvml":
        _refuse(path, fault(content, OfRealGpu))
    _refuse(path, consistency.of_point(content))
    _is_of(path, content, setup, target, pair, repeat)
    if setup.gpu["kind"] == "nvml":
        _same(path, "device", content["device"]["uuid"], setup.gpu["uuid"])
    _refuse(path, change_of(content))
    return content


def read_any(path: str | PathLike[str]) -> dict[str, Any]:
    """Return a point's record, of whatever setup, target and pair."""
    content: Any = read(path, PointRecord, POINT, _REMEDY, "record", "run snakemake again")
    _refuse(path, change_of(content))
    return content


def read_comparison(path: str) -> tuple[str, list[Comparison]]:
    """Return (digest of the setup, comparisons) of a record."""
    content = read(path, ComparisonRecord, COMPARISON, _REMEDY, "record", "run snakemake again")
    if content["device"]["kind"] == "nvml":
        _refuse(path, fault(content["device"], _RealDevice, "device"))
    _refuse(path, _disagreement(content))
    _refuse(path, change_of(content))
    return content["run"]["setup"], content["comparisons"]


def _is_of(
    path: str, content: PointRecord, setup: Setup, target: MeasurementTarget, pair: Pair, repeat: int | None
) -> None:
    """Raise InputError unless a file is of this setup, target, pair and repeat (None: that of its name)."""
    run, kernel, request = content["run"], content["kernel"], content["request"]
    _same(path, "setup", run["setup"], setup.digest)
    _same(path, "target", f"{kernel['study']}/{kernel['name']}", f"{target.study}/{target.name}")
    _same(path, "clocks", label((request["core_mhz"], request["mem_mhz"])), label(pair))
    if repeat is None:
        repeat = _repeat_of(path)
    if repeat is not None:
        _same(path, "repeat", run["repeat"], repeat)


def _disagreement(content: ComparisonRecord) -> str:
    """Return what is wrong with the points of a comparison's record, in words; "" where they agree."""
    disagreements = (
        # of an iteration there are auto and chosen once, see measurement.again
        consistency.of_summary(f"comparisons[{number}].points[{place}].", point, content["device"], len(points) == 2)
        for number, comparison in enumerate(content["comparisons"])
        for points in [comparison["points"]]
        for place, point in enumerate(points)
    )
    return next(filter(None, disagreements), "")


def _repeat_of(path: str) -> int | None:
    """Return the k of a file name r<k>.json, None for any other name."""
    name = path.rpartition("/")[2]
    number = name[1:-5]
    return int(number) if name == f"r{number}.json" and number.isdecimal() else None


def _same(path: str, what: str, value: Any, expected: Any) -> None:
    if value != expected:
        _refuse(path, f"foreign: its {what} is {value}, expected {expected}")


def _refuse(path: str | PathLike[str], wrong: str) -> None:
    """Raise InputError where something is wrong."""
    if wrong:
        raise InputError(f"record {path}: {wrong}; {_REMEDY}")
