"""What a measurement job does: one target at one clock pair, one record."""

from __future__ import annotations

from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.campaign import AnyBench, open_bench
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import Pair


def measure(
    setup: Setup,
    setup_path: str,
    target: MeasurementTarget,
    pair: Pair,
    campaign: str,
    repeat: int,
    output: str,
    bench: AnyBench | None = None,
    session: str = "",
) -> None:
    """Measure a point and write its record to `output`.

    setup_path: the file of `setup`. bench: of this target, open already; session: what else campaign.open_bench is
    told. Raises InputError where the GPU cannot measure.
    """
    bench = bench or open_bench(setup, setup_path, target, session)
    point = bench.point(pair, campaign, repeat)
    record.write_point(output, setup, bench, target, campaign, repeat, point)
