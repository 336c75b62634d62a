"""What a simulated GPU would measure without noise: time and power of every target at every clock pair, as arrays."""

from typing import NamedTuple

import numpy as np

from kernel_dvfs.gpu.clocks import AUTO
from kernel_dvfs.gpu.simulated import SimulatedGpu
from kernel_dvfs.measurement.point import condition, measure
from kernel_dvfs.measurement.target import Target


class Truth(NamedTuple):
    """names: K kernels; launches: (K,) per iteration; groups: (K,) replicate group or None; pairs: C clock pairs, the
    baseline first. time_s, energy_j: (K, C) per launch, the model without noise and campaign offset. tops, shares: (M,)
    MHz that the highest requests land on, and how often; top_time_s, top_energy_j: (K, C, M) where each is drawn.
    """

    names: list
    launches: np.ndarray
    groups: list
    pairs: list
    time_s: np.ndarray
    energy_j: np.ndarray
    shares: np.ndarray
    top_time_s: np.ndarray
    top_energy_j: np.ndarray


def truth(setup, pairs: list) -> Truth:
    """The truth of the kernels of a setup (simulated GPU) at `pairs`."""
    kernels, spec = setup.targets["kernel"], setup.gpu["spec"]
    tops = spec["clocks"].get("top_core_mhz") or {}
    landing = [float(mhz) for mhz in tops]
    points, drawn = [], []
    for name in kernels:
        board = SimulatedGpu(spec, seed=0, exact=True)
        load = board.prepare(setup, Target("kernel", name))
        condition(board, load, ("condition",))
        for pair in pairs:
            own = _point(board, load, pair, setup)
            points.append(own)
            high = landing and pair[0] != AUTO and pair[0] > min(landing)
            drawn += [_point(board, load, pair, setup, top) for top in landing] if high else [own] * max(len(tops), 1)
    shape = (len(kernels), len(pairs))
    time_s, energy_j = np.array(points).reshape(*shape, 2).transpose(2, 0, 1)
    top_time_s, top_energy_j = np.array(drawn).reshape(*shape, -1, 2).transpose(3, 0, 1, 2)
    shares = np.array(list(tops.values()) or [1.0])
    return Truth(
        names=list(kernels),
        launches=np.array([about["launches_per_iteration"] for about in kernels.values()], dtype=float),
        groups=[about["replicate_group"] for about in kernels.values()],
        pairs=list(pairs),
        time_s=time_s,
        energy_j=energy_j,
        shares=shares / shares.sum(),
        top_time_s=top_time_s,
        top_energy_j=top_energy_j,
    )


def _point(hot: SimulatedGpu, load: list, pair, setup, top_mhz: float | None = None) -> tuple:
    """(s, J) of one launch, on a copy of the hot board."""
    board = hot.copy()
    if top_mhz is not None:
        board.top_mhz = top_mhz
    summary = measure(board, load, pair, setup.measurement, ("truth",))["summary"]
    return summary["time_us"] * 1e-6, summary["energy_mj"] * 1e-3
