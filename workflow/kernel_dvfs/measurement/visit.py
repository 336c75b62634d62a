"""A visit: one clock pair is put in force and verified once, and all kernels are measured at it.

Times come from passes of the whole iteration with a stamp between kernels, power from short windows of single kernels,
or of groups of light ones. A session is a row of visits in one measuring process, its tensors in one place in memory;
what a session does to all its visits, only another session can show.

One visit, one record: visit/s<session>/<place>-<core>-<mem>.json below the folder of records. Raw units: us, mW, MHz.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired, Protocol, TypedDict

from kernel_dvfs.measurement.point import ClockRequest
from kernel_dvfs.measurement.verdict import Verdict
from kernel_dvfs.measurement.window import Ends, RecordDevice
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair, label
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import change_of, inside, sealed_json, write_text
from kernel_dvfs_clocks.shape import AtLeastOne, Count, Is, NotNegative, Positive, Text, read

if TYPE_CHECKING:
    from kernel_dvfs.measurement.setup import Setup

SCHEMA = "kernel-dvfs/visit/1"
# what a board shows in so long (H200, default clocks): passes of the iteration at a lock and at auto; windows of power:
# 0.03 % of time and 0.6 to 1.1 % of power in 0.5 s, but 1.3 and 2.5 % at the power cap, where 1 s is within 0.2 %
PASS_S, AUTO_PASS_S = 2.5, 5.0
WINDOW_S, AUTO_WINDOW_S = 0.5, 1.0
# until the clocks have settled, and between two kernels at the same clocks
SETTLE_S, AUTO_SETTLE_S, KERNEL_S = 0.5, 2.0, 0.25
# kernels that make up this share of an iteration's time have windows of their own; the light ones share some
HEAVY_SHARE = 0.97
# another measuring process: tensors allocated anew, kernels made ready
OPENING_S = 20.0
_REMEDY = "delete it and run snakemake again"
# of the ratio of two clocks, in energy: voltage rises by less than the fourth power of the clock
_MOST_POWER, _HALVINGS = 8.0, 40


class Visit(NamedTuple):
    """What a visit is asked for."""

    session: int  # from 0
    place: int  # within its session, from 0
    pair: Pair  # BASELINE: nothing is locked
    pass_s: float  # passes of the whole iteration, for so long
    window_s: float  # of each window of power
    metered: tuple[tuple[str, ...], ...]  # kernels of each window, which run in turn in it; (): times alone


class VisitRequest(ClockRequest):
    """The request of a record."""

    session: Count
    place: Count
    pass_s: Positive
    window_s: NotNegative
    metered: list[list[Text]]


class Passes(TypedDict):
    """The passes of the whole iteration, all at one pair."""

    n: AtLeastOne  # whole passes that were stamped
    iteration_us: Positive  # of one pass, mean
    power_mw: Positive  # of the board, mean over the passes
    is_capped: bool  # the power cap held the clocks down
    time_us: dict[str, Positive]  # of one launch of each kernel, mean over its launches and all passes


class Power(TypedDict):
    """A window of power."""

    kernels: Annotated[list[Text], Is("a list of kernels", bool)]
    duration_s: Positive
    power_mw: Positive
    time_us: Positive  # of one round (round_of)
    core_mhz: Positive
    is_capped: bool  # the power cap held the clocks down: alone, also a kernel that it leaves alone among others


class VisitClocks(TypedDict):
    """The clocks that the passes ran at."""

    core_mhz: Positive
    mem_mhz: Positive


class VisitMeasurement(TypedDict):
    """What a visit measured."""

    request: VisitRequest
    passes: Passes
    powers: list[Power]  # one for each of request.metered, in its order
    reached: VisitClocks
    temp_c: Ends  # before and after
    spent_s: Positive  # of the board's time
    verdict: Verdict
    reasons: list[str]


class VisitRun(TypedDict):
    """Under what a visit was measured."""

    setup: str  # digest
    seed: Count
    run_id: NotRequired[str]  # the session of a real GPU
    started_utc: NotRequired[str]
    host: NotRequired[str]
    boot_id: NotRequired[str]


class VisitRecord(VisitMeasurement):
    """The record of a visit."""

    schema: str
    run: VisitRun
    device: RecordDevice
    sha256: str


class Visitor(Protocol):
    """What measures the iteration of a setup: a simulated GPU in this process, or a real one in another.

    device, run: what a record says of these besides the setup; of the last visit.
    """

    @property
    def device(self) -> RecordDevice: ...

    @property
    def run(self) -> dict[str, Any]: ...

    def visit(self, visit: Visit) -> VisitMeasurement:
        """Measure. Raises InputError where the GPU cannot."""
        ...


def least_s(pair: Pair, pass_s: float, windows: int, window_s: float) -> float:
    """Return what a visit takes at least, s: settling, passes, and windows of power."""
    settle_s = AUTO_SETTLE_S if pair == BASELINE else SETTLE_S
    return settle_s + pass_s + windows * (KERNEL_S + window_s)


def round_of(names: Sequence[str], launches: Mapping[str, int]) -> dict[str, int]:
    """Return {kernel: launches} of one round of a window: the fewest that stand to one another as in an iteration, so
    that a window of one kernel holds any number of its launches."""
    least = math.gcd(*(launches[name] for name in names))
    return {name: launches[name] // least for name in names}


def power_in_passes_mw(
    setup: Setup, visited: VisitMeasurement, more: Sequence[VisitMeasurement] = ()
) -> dict[str, float]:
    """Return {kernel: mW} so that power x time in the passes is its energy, of all kernels that were metered.

    more: further visits of the same pair, perhaps with windows of other kernels; passes count as their mean. A kernel
    by itself may be held below the clock that it has among others, by the power cap or, at auto, by the governor. Its
    window says too little then. Where all kernels were metered, such kernels share what the iteration takes beyond the
    others; else they are left out.
    """
    launches = {name: about["launches_per_iteration"] for name, about in setup.targets["kernel"].items()}
    all_passes = [visit["passes"] for visit in (visited, *more)]
    windows = [window for visit in (visited, *more) for window in visit["powers"]]
    time_us = {name: _mean(passes["time_us"][name] for passes in all_passes) for name in visited["passes"]["time_us"]}
    energy_nj = _mean(passes["power_mw"] * passes["iteration_us"] for passes in all_passes)
    is_auto = visited["request"]["policy"] == AUTO
    powers_mw: dict[str, float] = {}
    held: dict[str, float] = {}  # {kernel: its clock among others over its clock alone}
    for window in windows:
        round_us = math.fsum(count * time_us[name] for name, count in round_of(window["kernels"], launches).items())
        powers_mw |= dict.fromkeys(window["kernels"], window["power_mw"] * window["time_us"] / round_us)
        if window["is_capped"] or is_auto:
            held |= dict.fromkeys(window["kernels"], visited["reached"]["core_mhz"] / window["core_mhz"])
    if held and powers_mw.keys() < launches.keys():
        return {name: power_mw for name, power_mw in powers_mw.items() if name not in held}
    if held:
        taken = {name: launches[name] * time_us[name] * power_mw for name, power_mw in powers_mw.items()}
        rest = energy_nj - math.fsum(taken[name] for name in taken.keys() - held.keys())
        if rest <= 0:
            # light ones among heavy ones, whose windows say more than the iteration takes: then all share what it takes
            held, rest = dict.fromkeys(powers_mw, 1.0), energy_nj
        factors = _shares({name: taken[name] for name in held}, held, rest)
        powers_mw |= {name: factors[name] * powers_mw[name] for name in held}
    return powers_mw


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return math.fsum(known) / len(known)


def _shares(taken: Mapping[str, float], ratio: Mapping[str, float], rest: float) -> dict[str, float]:
    """Return the factor of each kernel's energy by which all together take `rest`: a power of the ratio of its clocks,
    as voltage goes with the clock; where no power does it, the same factor for all."""

    def total(power: float) -> float:
        return math.fsum(energy * ratio[name] ** power for name, energy in taken.items())

    low, high = 0.0, _MOST_POWER
    if not (total(low) <= rest <= total(high)):
        return dict.fromkeys(taken, rest / total(0.0))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) < rest else (low, middle)
    return {name: ratio[name] ** low for name in taken}


def path(visit: Visit) -> str:
    """Return the path of a visit's record below the folder `measurements`."""
    return _path(visit.session, visit.place, label(visit.pair))


def path_of(record: VisitRecord) -> str:
    """Return the path that a record belongs at."""
    request = record["request"]
    return _path(request["session"], request["place"], label((request["core_mhz"], request["mem_mhz"])))


def _path(session: int, place: int, clocks: str) -> str:
    return inside(f"visit/s{session}/{place}-{clocks}.json")


def write(file: str, setup: Setup, visitor: Visitor, visited: VisitMeasurement) -> None:
    """Write the record of a visit, whole or not at all."""
    run = {"setup": setup.digest, "seed": setup.measurement["seed"]} | visitor.run
    device = visitor.device
    content = sealed_json({"schema": SCHEMA, "run": run, "device": device} | visited)
    write_text(file, content + "\n", durable=device["kind"] == "nvml")


def read_record(file: str) -> VisitRecord:
    """Return the record of some visit. Raises InputError naming one that is missing or damaged."""
    record = read(file, VisitRecord, SCHEMA, _REMEDY, "record", "run snakemake again")
    if what := change_of(record):
        raise InputError(f"record {file}: {what}; {_REMEDY}")
    return record


def read_visit(file: str, setup: Setup, visit: Visit) -> VisitRecord | None:
    """Return the record of a visit; None where it is of another setup or was asked for otherwise, so it is measured
    again.

    Raises InputError as `read_record` does.
    """
    record = read_record(file)
    request, same = record["request"], asked(visit)
    if record["run"]["setup"] != setup.digest or {name: request.get(name) for name in same} != same:
        return None
    return record


def asked(visit: Visit) -> dict[str, Any]:
    """Return the part of a record's request that a visit says."""
    return {
        "session": visit.session,
        "place": visit.place,
        "core_mhz": visit.pair[0],
        "mem_mhz": visit.pair[1],
        "pass_s": visit.pass_s,
        "window_s": visit.window_s,
        "metered": [list(names) for names in visit.metered],
    }
