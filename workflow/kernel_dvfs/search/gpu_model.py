"""The GPU as the search knows it: how time and power follow clocks, what is public, and what measured points tell.

One launch takes t = ((C/f)^p + (M/b)^p)^(1/p) + t0 and draws P = Ps + k V^2 f + (A V^2 + s B)/t, that of
gpu.model, here in arrays with slopes. Unknowns are logarithms. Those of a kernel are theta =
log(C, M, t0, p, A, B), C in s GHz, M and t0 in s, A and B in J. Those of the GPU are one vector `g`: log of core GHz
at each core node, of bandwidth, static W and DRAM energy at each memory node, of V/V0 at each voltage node, of W/GHz of
the clock tree, how far the top clock falls, and what auto adds to power.

Before anything is measured only what is public is known, and that is wide on purpose: measured points soon weigh more.
Voltage: V/V0 against the share of the highest core clock, the mean of three GPUs that no study here searches: V100 and
RTX 8000 (our fits on the published tables of NV-DVFS-Benchmark) and Titan Xp (published with gpmTOOL). Power: the clock
tree of the same V100 and RTX 8000. The exponent p = 3 and its spread: gpu.model. No constant is taken from the spec of
a simulated GPU.

A core clock that a driver grants is close to its label, except for the lowest (which may act as more) and the highest
(which the GPU rarely reaches); a recorded clock is believed. Auto and the highest requests ask for the top of the
curve: the clock there falls with power while the voltage stays, and auto may draw more than the same clock locked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernel_dvfs.search.candidates import Candidates, Seen

# share of the highest core clock, V/V0, relative uncertainty (standard deviation of its logarithm)
VOLTAGE = np.array(
    [
        (0.40, 1.00, 0.005),
        (0.55, 1.01, 0.02),
        (0.62, 1.03, 0.035),
        (0.72, 1.08, 0.06),
        (0.81, 1.19, 0.10),
        (0.90, 1.29, 0.15),
        (1.00, 1.48, 0.20),
    ]
)
VOLTAGE_LENGTH = 0.12  # share of the highest clock over which a deviation from that curve is alike

# of a kernel, relative to its baseline time t, energy e, and the highest core clock f: mean and spread of log
# C/(t f), M/t, t0/t, p, A/e, B/e
KERNEL_MEAN = np.log([0.5, 0.4, 0.05, 3.0, 0.2, 0.15])
KERNEL_SPREAD = np.array([1.0, 1.0, 1.3, 0.35, 0.8, 1.0])
# how many kernels that is worth, when the measured ones say otherwise
KERNEL_STRENGTH = 8.0

# of the GPU, relative to the highest mean power seen: static power at the highest memory clock, k f of the clock tree
STATIC = (0.25, 0.5)
CLOCK = (0.08, 0.7)
BANDWIDTH_SPREAD = 0.12  # bandwidth is proportional to the memory clock, within this
STATIC_SPREAD = 0.6  # static power of a memory clock: (clock / highest)^STATIC_POWER, within this
STATIC_POWER = 0.4
SCALE_SPREAD = 0.4  # DRAM energy per byte against that at the highest memory clock

CLEAR_OF_CAP = 0.955  # share of the cap below which a run surely was not capped
FALL = (0.03, 0.03)  # of the log of the top clock, from no power to the highest seen; 0 where clocks are recorded
AUTO_ADDS = 0.03  # to the log of power, against the same clock locked: nothing, within this
TOP_SHARE = 0.98  # of the highest label, from which a request asks for the top

NEAR_TOP = 0.96  # of the highest core clock: a capped board that reaches it may have any voltage above
_NEAR = 0.93  # share of the highest mean power from which a run without a recorded clock may be capped
_SAME_CLOCK = 0.015  # voltage nodes closer than this are one
_FIXED = 1e-4  # spread of what only sets a unit


class At(NamedTuple):
    """What the GPU is at some clocks: arrays of one shape, or of shapes that broadcast."""

    log_f: np.ndarray  # log of core GHz
    log_b: np.ndarray  # log of bandwidth relative to that at the highest memory clock
    log_ps: np.ndarray  # log of static W
    log_k: np.ndarray  # log of W/GHz of the clock tree
    log_v: np.ndarray  # log of V/V0
    log_s: np.ndarray  # log of DRAM energy per byte relative to that at the highest memory clock
    log_x: np.ndarray  # log of board power against what the other terms add up to


@dataclass(frozen=True, slots=True, eq=False)
class Slopes:
    """Time and power of launches, and how they change."""

    log_time: np.ndarray  # log of s
    log_power: np.ndarray  # log of W
    by_theta_time: np.ndarray  # (..., 6) slopes of log_time by theta
    by_theta_power: np.ndarray  # (..., 6) slopes of log_power by theta
    by_at_time: np.ndarray  # (..., 7) slopes of log_time by the fields of At
    by_at_power: np.ndarray  # (..., 7) slopes of log_power by the fields of At


def log_voltage(share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean, spread) of log(V/V0) at shares of the highest core clock."""
    at = VOLTAGE[:, 0]
    return np.interp(share, at, np.log(VOLTAGE[:, 1])), np.interp(share, at, VOLTAGE[:, 2])


def predict(theta: np.ndarray, at: At) -> tuple[np.ndarray, np.ndarray]:
    """(log t in s, log P in W) of kernels theta (..., 6) at clocks `at` (..., broadcast against theta's)."""
    log_core, _, _ = _core(theta, at)
    log_time = np.logaddexp(log_core, theta[..., 2])
    return log_time, _power(theta, at, log_time)[0]


def with_slopes(theta: np.ndarray, at: At) -> Slopes:
    """As `predict`, with slopes."""
    log_core, share_c, share_m = _core(theta, at)
    log_time = np.logaddexp(log_core, theta[..., 2])
    work = np.exp(log_core - log_time)  # share of the time that is not latency
    with np.errstate(invalid="ignore", divide="ignore"):
        of_p = share_c * np.log(share_c) + share_m * np.log(share_m)
    by_p = work * np.nan_to_num(of_p) / np.exp(theta[..., 3])
    zero = np.zeros_like(log_time)
    time = np.stack([work * share_c, work * share_m, 1 - work, by_p, zero, zero], -1)
    log_power, static, tree, core, dram = _power(theta, at, log_time)
    power = -(core + dram)[..., None] * time
    power[..., 4] = core
    power[..., 5] = dram
    at_time = np.stack([-work * share_c, -work * share_m, *[zero] * 5], -1)
    at_power = -(core + dram)[..., None] * at_time
    at_power[..., 0] += tree
    at_power[..., 2] = static
    at_power[..., 3] = tree
    at_power[..., 4] = 2 * (tree + core)
    at_power[..., 5] = dram
    at_power[..., 6] = 1.0
    return Slopes(log_time, log_power, time, power, at_time, at_power)


def _core(theta: np.ndarray, at: At) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log of ((C/f)^p + (M/b)^p)^(1/p), and the shares of both terms in the sum."""
    p = np.exp(theta[..., 3])
    core, memory = p * (theta[..., 0] - at.log_f), p * (theta[..., 1] - at.log_b)
    both = np.logaddexp(core, memory)
    return both / p, np.exp(core - both), np.exp(memory - both)


def _power(theta: np.ndarray, at: At, log_time: np.ndarray) -> tuple[np.ndarray, ...]:
    """log P and the shares of its parts: static, clock tree, core, DRAM."""
    parts = [
        at.log_ps + 0 * log_time,
        at.log_k + 2 * at.log_v + at.log_f + 0 * log_time,
        theta[..., 4] + 2 * at.log_v - log_time,
        theta[..., 5] + at.log_s - log_time,
    ]
    log_power = np.logaddexp(np.logaddexp(parts[0], parts[1]), np.logaddexp(parts[2], parts[3]))
    return log_power + at.log_x, *(np.exp(part - log_power) for part in parts)


@dataclass(frozen=True, slots=True, eq=False)
class GpuModel:
    """Where the GPU's constants stand in the vector g, and what is known of them before the fit."""

    core_node: np.ndarray  # (P,) core node of each pair
    mem_node: np.ndarray  # (P,) memory node of each pair
    top: np.ndarray  # (P,) bool, pairs that ask for the top of the curve
    auto: np.ndarray  # (P,) bool, pairs whose core clock is left to the governor
    core_ghz: np.ndarray  # base clock of each core node
    mem_mhz: np.ndarray  # clock of each memory node
    voltage_ghz: np.ndarray  # core clock of each voltage node
    mean: np.ndarray  # (G,) prior mean of g
    precision: np.ndarray  # (G, G) inverse of its prior covariance
    cap_w: float  # power cap seen in the points, inf if none
    highest_w: float  # highest mean power seen

    @property
    def places(self) -> dict[str, slice]:
        """Where each field of At stands in g: {name: slice}."""
        cores, mems, voltages = len(self.core_ghz), len(self.mem_mhz), len(self.voltage_ghz)
        sizes = {"log_f": cores, "fall": 1, "log_b": mems}  # what acts on time comes first
        sizes |= {"log_ps": mems, "log_k": 1, "log_v": voltages, "log_s": mems, "log_x": 1}
        ends = np.cumsum(list(sizes.values()))
        return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}

    def voltage_weights(self, ghz: np.ndarray) -> np.ndarray:
        """(..., nodes) weights of linear interpolation of log V at clocks, flat outside."""
        at = self.voltage_ghz
        if len(at) == 1:
            return np.ones((*np.shape(ghz), 1))
        x = np.clip(ghz, at[0], at[-1])
        right = np.clip(np.searchsorted(at, x), 1, len(at) - 1)
        share = (x - at[right - 1]) / (at[right] - at[right - 1])
        rows = np.arange(len(at))
        return (rows == (right - 1)[..., None]) * (1 - share)[..., None] + (rows == right[..., None]) * share[..., None]

    def at_pairs(self, g: np.ndarray) -> At:
        """The constants at every pair, (..., P), for g (..., G); no cap, and the top clock of a board without power."""
        place = self.places
        core, mem = self.core_node, self.mem_node
        weights = self.voltage_weights(self.core_ghz)[core]
        return At(
            g[..., place["log_f"]][..., core],
            g[..., place["log_b"]][..., mem],
            g[..., place["log_ps"]][..., mem],
            g[..., place["log_k"]],
            g[..., place["log_v"]] @ weights.T,
            g[..., place["log_s"]][..., mem],
            g[..., place["log_x"]] * self.auto,
        )


def gpu_model_of(candidates: Candidates, seen: Seen) -> GpuModel:
    """What the points seen so far tell of a GPU's clocks."""
    core_node, labels = _nodes(candidates.core_mhz)
    auto = np.isnan(candidates.core_mhz)
    mem_node, mem_labels = _memory(candidates, seen)
    power = seen.power_w
    cap_w = _cap(candidates, seen, power)
    base, spread = _core_clocks(labels, core_node, seen, power, cap_w)
    voltage = _distinct(np.sort(base))
    highest = float(power.max())
    asked = np.where(np.isnan(labels), np.inf, labels)
    top = asked >= TOP_SHARE * max(base.max() * 1000, np.nanmax(labels, initial=0.0))
    fall, of_fall = FALL
    if (~np.isnan(seen.core_mhz)).any():
        fall, of_fall = 0.0, _FIXED
    mean = [np.log(base), np.array([fall])]
    covariance = [np.diag(spread**2), np.array([[of_fall**2]])]

    ratio = np.log(mem_labels / mem_labels.max())
    far = np.abs(ratio)
    # bandwidth, static power, clock tree, voltage, DRAM energy, auto: the order of GpuModel.places
    mean.append(ratio)
    covariance.append(np.diag(np.where(far > 0, 0.02 + BANDWIDTH_SPREAD * np.minimum(far, 1.5), _FIXED) ** 2))
    mean.append(np.log(STATIC[0] * highest) + STATIC_POWER * ratio)
    own = np.diag((0.02 + STATIC_SPREAD * np.minimum(far, 1)) ** 2)
    covariance.append(own + STATIC[1] ** 2)
    mean.append(np.log([CLOCK[0] * highest / base.max()]))
    covariance.append(np.array([[CLOCK[1] ** 2]]))
    share = voltage / voltage.max()
    curve, sd = log_voltage(share)
    alike = np.exp(-0.5 * ((share[:, None] - share) / VOLTAGE_LENGTH) ** 2)
    mean.append(curve)
    covariance.append(sd[:, None] * sd * alike + np.diag(0.02 * sd**2 + 1e-6))
    mean.append(0 * ratio)
    covariance.append(np.diag(np.where(far > 0, 0.02 + SCALE_SPREAD * np.minimum(far, 1), _FIXED) ** 2))
    mean.append(np.zeros(1))
    covariance.append(np.array([[AUTO_ADDS**2]]))

    size = sum(map(len, mean))
    precision, begin = np.zeros((size, size)), 0
    for block in covariance:
        end = begin + len(block)
        precision[begin:end, begin:end] = np.linalg.inv(block)
        begin = end
    nodes = core_node, mem_node, top[core_node], auto, base, mem_labels, voltage
    return GpuModel(*nodes, np.concatenate(mean), precision, cap_w, highest)


def _nodes(requested: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(node of each request, label of each node); the governor's own, NaN, is the last node."""
    labels = np.unique(requested)  # NaN last, once
    node = np.searchsorted(labels[~np.isnan(labels)], requested)
    node[np.isnan(requested)] = len(labels) - 1
    return node, labels


def _memory(candidates: Candidates, seen: Seen) -> tuple[np.ndarray, np.ndarray]:
    """(memory node of each pair, clock of each node): requests that fold to another clock belong to that."""
    requested = candidates.mem_mhz
    labels = np.unique(np.concatenate([requested[~np.isnan(requested)], _recorded(seen.mem_mhz)]))
    if not len(labels):
        labels = np.array([1.0])
    node = np.searchsorted(labels, np.where(np.isnan(requested), labels[-1], requested))
    for pair in np.unique(seen.pair):
        reached = _recorded(seen.mem_mhz[seen.pair == pair])
        if len(reached):
            node[pair] = np.searchsorted(labels, np.median(reached)).clip(0, len(labels) - 1)
    # what auto reaches is told by the pairs that were measured
    auto = np.isnan(requested)
    told = auto & np.isin(np.arange(len(requested)), seen.pair[~np.isnan(seen.mem_mhz)])
    if told.any():
        node[auto] = np.bincount(node[told]).argmax()
    return node, labels


def _recorded(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def _cap(candidates: Candidates, seen: Seen, power: np.ndarray) -> float:
    """The power cap that holds clocks down, W; inf where no point shows one."""
    reached = seen.core_mhz
    ceiling = np.nanmax(reached) if (~np.isnan(reached)).any() else np.inf
    asked = candidates.core_mhz[seen.pair]
    asked = np.where(np.isnan(asked), ceiling, np.minimum(asked, ceiling))
    held = (reached < 0.985 * asked) & (power > _NEAR * power.max())
    if held.any():
        return float(np.median(power[held]))
    near = np.isnan(reached) & (power > _NEAR * power.max())
    several = len(np.unique(seen.target[near])) >= max(4, 0.1 * len(candidates.targets))
    return float(np.median(power[near])) if several else np.inf


def _core_clocks(
    labels: np.ndarray, core_node: np.ndarray, seen: Seen, power: np.ndarray, cap_w: float
) -> tuple[np.ndarray, np.ndarray]:
    """Base clock (GHz) of each core node and the spread of its logarithm."""
    known = labels[~np.isnan(labels)]
    top = known.max() if len(known) else _recorded(seen.core_mhz).max(initial=1000.0)
    share = labels / top
    base = np.where(np.isnan(labels), top, labels)
    # the lowest request may act as more; the highest, and auto, land somewhat below the highest label
    spread = np.where(share < 0.16, 0.06, np.where(share > 0.98, 0.04, 0.004))
    spread[np.isnan(labels)] = 0.05
    free = power < _NEAR * cap_w
    reached = np.where(free, seen.core_mhz, np.nan)
    if (~np.isnan(seen.core_mhz)).any():
        # clocks are recorded: a request lands where it is recorded to land, at most at the highest seen
        highest = np.nanmax(seen.core_mhz)
        above = (base > highest) | np.isnan(labels)
        base = np.where(above, highest, base)
        for node in range(len(labels)):
            own = _recorded(reached[core_node[seen.pair] == node])
            if len(own):
                base[node], spread[node] = np.median(own), 0.003
    return base / 1000, spread


def _distinct(ghz: np.ndarray) -> np.ndarray:
    kept = [ghz[0]]
    for clock in ghz[1:]:
        if clock > kept[-1] * (1 + _SAME_CLOCK):
            kept.append(clock)
    return np.array(kept)
