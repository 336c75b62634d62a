"""The GPU as the search knows it: nodes of core clock, memory clock and voltage, and the power cap, as far as seen.

A core clock that a driver grants is close to its label, but for the lowest (which may act as more) and the highest
(which the board rarely reaches); a recorded clock is taken at its word. The GPU's constants are one vector `g`:
log of core GHz at each core node, of bandwidth, static W and DRAM energy at each memory node, of V/V0 at each voltage
node, and of W/GHz of the clock tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_dvfs.search import prior
from kernel_dvfs.search.candidates import Seen, Space
from kernel_dvfs.search.forward import At

_NEAR = 0.93  # share of the highest mean power from which a run without a recorded clock may be capped
_SAME_CLOCK = 0.015  # voltage nodes closer than this are one
_FIXED = 1e-4  # spread of what only sets a unit


@dataclass(frozen=True, eq=False)
class Board:
    """Indices and priors of the GPU's constants.

    core_node, mem_node: (P,) node of each pair. core_ghz: base clock of each core node. voltage_ghz: clocks of the
    voltage nodes. mean, precision: prior of g. cap_w: power cap seen in the points, inf if none. highest_w: highest
    mean power seen.
    """

    core_node: np.ndarray
    mem_node: np.ndarray
    core_ghz: np.ndarray
    mem_mhz: np.ndarray
    voltage_ghz: np.ndarray
    mean: np.ndarray
    precision: np.ndarray
    cap_w: float
    highest_w: float

    @property
    def places(self) -> dict:
        """Where each field of forward.At stands in g: name -> slice."""
        cores, mems, voltages = len(self.core_ghz), len(self.mem_mhz), len(self.voltage_ghz)
        sizes = {"log_f": cores, "log_b": mems, "log_ps": mems, "log_k": 1, "log_v": voltages, "log_s": mems}
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
        """The constants at every pair, (..., P), for g (..., G); no cap."""
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
        )


def board_of(space: Space, seen: Seen) -> Board:
    """What the points seen so far tell of a GPU's clocks."""
    core_node, labels = _nodes(space.core_mhz)
    mem_node, mem_labels = _memory(space, seen)
    power = seen.power_w
    cap_w = _cap(space, seen, power)
    base, spread = _core_clocks(labels, core_node, seen, power, cap_w)
    voltage = _distinct(np.sort(base))
    highest = float(power.max())
    mean, covariance = [np.log(base)], [np.diag(spread**2)]

    top = mem_labels.max()
    ratio = np.log(mem_labels / top)
    far = np.abs(ratio)
    # bandwidth, static power, clock tree, voltage, DRAM energy: the order of Board.places
    mean.append(ratio)
    covariance.append(np.diag(np.where(far > 0, 0.02 + prior.BANDWIDTH_SPREAD * np.minimum(far, 1.5), _FIXED) ** 2))
    mean.append(np.log(prior.STATIC[0] * highest) + prior.STATIC_POWER * ratio)
    own = np.diag((0.02 + prior.STATIC_SPREAD * np.minimum(far, 1)) ** 2)
    covariance.append(own + prior.STATIC[1] ** 2)
    mean.append(np.log([prior.CLOCK[0] * highest / base.max()]))
    covariance.append(np.array([[prior.CLOCK[1] ** 2]]))
    share = voltage / voltage.max()
    curve, sd = prior.log_voltage(share)
    alike = np.exp(-0.5 * ((share[:, None] - share) / prior.VOLTAGE_LENGTH) ** 2)
    mean.append(curve)
    covariance.append(sd[:, None] * sd * alike + np.diag(0.02 * sd**2 + 1e-6))
    mean.append(0 * ratio)
    covariance.append(np.diag(np.where(far > 0, 0.02 + prior.SCALE_SPREAD * np.minimum(far, 1), _FIXED) ** 2))

    size = sum(map(len, mean))
    precision, begin = np.zeros((size, size)), 0
    for block in covariance:
        end = begin + len(block)
        precision[begin:end, begin:end] = np.linalg.inv(block)
        begin = end
    return Board(core_node, mem_node, base, mem_labels, voltage, np.concatenate(mean), precision, cap_w, highest)


def _nodes(requested: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(node of each request, label of each node); the governor's own, NaN, is the last node."""
    labels = np.unique(requested)  # NaN last, once
    node = np.searchsorted(labels[~np.isnan(labels)], requested)
    node[np.isnan(requested)] = len(labels) - 1
    return node, labels


def _memory(space: Space, seen: Seen) -> tuple[np.ndarray, np.ndarray]:
    """(memory node of each pair, clock of each node): requests that fold to another clock belong to that."""
    requested = space.mem_mhz
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


def _cap(space: Space, seen: Seen, power: np.ndarray) -> float:
    """The power cap that holds clocks down, W; inf where no point shows one."""
    reached = seen.core_mhz
    ceiling = np.nanmax(reached) if (~np.isnan(reached)).any() else np.inf
    asked = space.core_mhz[seen.pair]
    asked = np.where(np.isnan(asked), ceiling, np.minimum(asked, ceiling))
    held = (reached < 0.985 * asked) & (power > _NEAR * power.max())
    if held.any():
        return float(np.median(power[held]))
    near = np.isnan(reached) & (power > _NEAR * power.max())
    several = len(np.unique(seen.target[near])) >= max(4, 0.1 * len(space.targets))
    return float(np.median(power[near])) if several else np.inf


def _core_clocks(labels, core_node, seen, power, cap_w) -> tuple[np.ndarray, np.ndarray]:
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
