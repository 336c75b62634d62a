"""What a measurement job does: one target at one clock pair, one record. Light, as all that a simulated point needs."""

from __future__ import annotations

from typing import Any

from kernel_dvfs.gpu.clocks import Pair
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.campaign import open_bench
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import Target


def measure(
    setup: Setup,
    setup_path: str,
    target: Target,
    pair: Pair,
    campaign: str,
    repeat: int,
    output: str,
    bench: Any = None,
) -> None:
    """Measure a point and write its record to `output`, or in its place why it need not be measured (skip_capped).

    setup_path: the file of `setup`. bench: a bench of this target that is open already (campaign.open_bench).
    Raises InputError where the GPU cannot measure.
    """
    # only where it is configured: a simulated point has no need of it
    if setup.measurement.get("skip_capped"):
        from kernel_dvfs.measurement import skipping

        why = skipping.reason(output, setup, target, pair)
        if why:
            record.write_skipped(output, setup, target, pair, repeat, why)
            return
    bench = bench or open_bench(setup, setup_path, target)
    point = bench.point(pair, campaign, repeat)
    record.write_point(output, setup, bench, target, campaign, repeat, point)
