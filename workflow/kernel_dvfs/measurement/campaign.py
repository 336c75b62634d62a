"""Campaigns: what is measured in one go under one name, on a GPU of a setup.

`sweep` finds clocks, `fresh-<repeat>` validates the choice. On a simulated GPU each campaign draws its own noise and
offsets, as another session would on a real one. On a real GPU each session of a study by clock, and each repeat of a
validation, has a measuring process of its own (`new_session`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from kernel_dvfs.gpu.noise import Key, uniform
from kernel_dvfs.measurement import again, consistency
from kernel_dvfs.measurement.point import Point, measure
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair, supported_core_mhz
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs.measurement.consistency import Comparison
    from kernel_dvfs.measurement.visit import Visitor
    from kernel_dvfs.measurement.window import RecordDevice

SWEEP = "sweep"


class AnyBench(Protocol):
    """What measures one target: a simulated GPU in this process (`Bench`), or a real one in another (`RemoteBench`).

    device, run, kernel: what a record says of these besides the setup and the target; of the last point.
    """

    @property
    def device(self) -> RecordDevice: ...

    @property
    def run(self) -> dict[str, Any]: ...

    @property
    def kernel(self) -> dict[str, Any]: ...

    def point(self, pair: Pair, campaign: str, repeat: int) -> Point:
        """Measure one point: see point.measure."""
        ...


def repeats(pair: Pair, auto_repeats: int) -> int:
    """Return how often a sweep measures a pair: the baseline `auto_repeats` times, everything else once."""
    return auto_repeats if pair == BASELINE else 1


def of_repeat(pair: Pair, repeat: int, auto_repeats: int) -> str:
    """Return the campaign of a record by its number alone, so that a record is the same whoever asked for it, and when.

    Each repeat belongs to a session of its own: those of the baseline are spread over the sweep, and repeats beyond the
    sweep's are of later sessions.
    """
    remeasured = repeat - repeats(pair, auto_repeats)
    if remeasured >= 0:
        return f"remeasure-{1 + remeasured}"
    return f"{SWEEP}-{repeat}" if repeat else SWEEP


def ordered_points(pairs: Sequence[Pair], auto_repeats: int, seed: int) -> list[tuple[Pair, int]]:
    """Return [(Pair, repeat)] in the order in which a real GPU sweeps: every pair once, the baseline `auto_repeats`
    times.

    Clock pair after clock pair, shuffled, with the baseline first, last and evenly between. A drift over hours then
    looks like noise instead of an effect of the clocks, the baseline shows the drift, and clocks change once per pair.
    """
    others = sorted((pair for pair in pairs if pair != BASELINE), key=lambda pair: uniform(seed, "order", *pair))
    count = repeats(BASELINE, auto_repeats) if BASELINE in pairs else 0
    ordered: list[tuple[Pair, int]] = []
    for place in range(max(count, 1)):
        if place < count:
            ordered.append((BASELINE, place))
        gaps = max(count - 1, 1)
        if place < gaps:
            ordered += [(pair, 0) for pair in others[place * len(others) // gaps : (place + 1) * len(others) // gaps]]
    return ordered


def lock_contracts(clocks: dict[str, Any]) -> dict[str, str]:
    """Return the ways of locking the highest clocks, which ought to change nothing against auto: {core, mem, both:
    CORE,MEM}; the core alone where memory clocks cannot be locked."""
    alone = {"core": f"{supported_core_mhz(clocks)[-1]},{AUTO}"}
    if not clocks["mem_mhz"]:
        return alone
    mem_mhz = max(clocks["mem_mhz"])
    return alone | {"mem": f"{AUTO},{mem_mhz}", "both": f"{supported_core_mhz(clocks, mem_mhz)[-1]},{mem_mhz}"}


def open_bench(setup: Setup, path: str, target: MeasurementTarget, session: str = "") -> AnyBench:
    """Return what measures a target on the GPU of a setup. path: of the setup's file. session: a real GPU's measuring
    process that it belongs to, by a name: one that was told another name ends, and another is started; "": whichever
    runs.

    Raises InputError for a kind of GPU that cannot measure.
    """
    if _is_real(setup):
        from kernel_dvfs.measurement.real.client import RemoteBench

        return RemoteBench(setup, path, target, session)
    return _simulated(setup, target)


# in Snakemake's process thousands of jobs measure the same few targets, each point from the same hot board
@lru_cache(maxsize=256)
def _simulated(setup: Setup, target: MeasurementTarget) -> Bench:
    return Bench(setup, target)


def open_visitor(setup: Setup, path: str, session: str = "") -> Visitor:
    """Return what measures visits on the GPU of a setup. path, session, errors: see open_bench."""
    if _is_real(setup):
        from kernel_dvfs.measurement.real.client import RemoteVisitor

        return RemoteVisitor(setup, path, session)
    from kernel_dvfs.measurement.simulated_iteration import SimulatedVisitor

    return SimulatedVisitor(setup)


def compare(
    setup: Setup, path: str, pairs: Mapping[MeasurementTarget, Pair], repeats: Sequence[int], session: str = ""
) -> tuple[RecordDevice, list[Comparison]]:
    """Measure auto, its pair, its pair, auto for each target and repeat: on which device, and what came of it. path,
    session, errors: see open_bench."""
    if _is_real(setup):
        from kernel_dvfs.measurement.real import client

        return client.compare(setup, path, pairs, repeats, session)
    comparisons = []
    for target, pair in pairs.items():
        bench = _simulated(setup, target)
        comparisons += [bench.compare(pair, repeat) for repeat in repeats]
    return bench.device, comparisons


def compare_iteration(
    setup: Setup, path: str, choices: Sequence[Mapping[MeasurementTarget, Pair]], repeat: int
) -> tuple[RecordDevice, list[list[Comparison]]]:
    """Measure auto and choices of clocks for the whole iteration in one block: on which device, and what came of each
    (again.compare_iteration). path, errors: see open_visitor."""
    visitor = open_visitor(setup, path)
    comparisons = again.compare_iteration(setup, visitor, choices, repeat)
    return visitor.device, comparisons


def _is_real(setup: Setup) -> bool:
    kind = setup.gpu["kind"]
    if kind not in ("simulated", "nvml"):
        raise InputError(f"gpu kind '{kind}' cannot measure; configure a simulated GPU by name, or nvml")
    return bool(kind == "nvml")


def new_session(setup: Setup, path: str, is_warm: bool = False) -> None:
    """Measure what follows in another session. path: of the setup's file. is_warm: in the same measuring process.

    A simulated GPU has nothing to end: what is drawn with a campaign is its session.
    """
    if setup.gpu["kind"] == "nvml":
        from kernel_dvfs.measurement.real import client

        (client.move if is_warm else client.renew)(path)


class Bench:
    """A simulated GPU conditioned for one target: each point starts from the same hot board.

    exact: without noise.
    """

    # only a real GPU has more to say here: records of a simulated one are the same bytes each time
    run: dict[str, Any] = {}  # noqa: RUF012 - never written
    kernel: dict[str, Any] = {}  # noqa: RUF012 - never written

    def __init__(self, setup: Setup, target: MeasurementTarget, exact: bool = False) -> None:
        from kernel_dvfs.measurement.simulated import SimulatedGpu

        self.setup = setup
        self.target = target
        self._hot = SimulatedGpu(setup.gpu["spec"], setup.measurement["seed"], exact)
        self._load = self._hot.prepare(setup, target)
        with self._hot.locked(BASELINE, ("condition",)):
            self._hot.condition(self._load)

    @property
    def device(self) -> RecordDevice:
        """The record's `device` group."""
        return self._hot.device()

    def point(self, pair: Pair, campaign: str = SWEEP, repeat: int = 0) -> Point:
        """Measure one point on the hot board: see point.measure."""
        key = Key(campaign, self.setup.workload["name"], f"{self.target.study}/{self.target.name}", repeat)
        return measure(self._hot.copy(), self._load, pair, self.setup.measurement, key)

    def compare(self, pair: Pair, repeat: int) -> Comparison:
        """Measure auto, `pair`, `pair`, auto: one repeat in a campaign of its own, which nothing was chosen from."""
        session = f"fresh-{repeat}"
        points = [self.point(clocks, session, number) for number, clocks in enumerate((BASELINE, pair, pair, BASELINE))]
        compared = [consistency.without_windows(point) for point in points]
        return {"target": self.target.name, "repeat": repeat, "session": session, "points": compared}
