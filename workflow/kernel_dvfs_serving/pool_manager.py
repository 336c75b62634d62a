"""DynamoLLM's pool manager: the degrees that a pool's servers are divided into, every five minutes.

Divisions are enumerated, not searched (a pool of 12 servers has some 4,600), and priced on the profile at the forecast
peak, each instance at the highest clock and at the share of the load that its capacity gives it. A division is changed
where that saves more in the epoch than the change takes; one server after the other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kernel_dvfs_serving.pools import FULL_TP, spread
from kernel_dvfs_serving.resharding import SERVER_GPUS, Layout, assign, layouts_for, units
from kernel_dvfs_serving.servers import ON

if TYPE_CHECKING:
    from kernel_dvfs_serving.cluster import Cluster
    from kernel_dvfs_serving.columns import PoolColumns


class Division(NamedTuple):
    """Instances of one pool."""

    counts: dict[int, int]  # {degree: instances}
    power_w: float  # at the peak, of all the pool's GPUs
    carries: bool  # whether it carries the peak within the promises; else it is the division that carries most


def divide(offer: PoolColumns, peak_tps: float, servers: int, degrees: Sequence[int], parked_w: float) -> Division:
    """Return the least-power division of a pool's servers. parked_w: of a GPU without instance."""
    able = tuple(tp for tp in degrees if offer.largest(tp) > 0)
    if not able:
        return Division({FULL_TP: servers}, float("inf"), False)
    return _best(offer, peak_tps, servers, able, _divisions(servers, able), parked_w)


def priced(offer: PoolColumns, peak_tps: float, servers: int, counts: dict[int, int], parked_w: float) -> Division:
    """Return a given division of a pool's servers, {degree: instances}, under a load."""
    degrees = tuple(counts)
    if not degrees or any(offer.largest(tp) <= 0 for tp in degrees):
        return Division(counts, float("inf"), False)
    return _best(offer, peak_tps, servers, degrees, np.array([list(counts.values())]), parked_w)


def _best(
    offer: PoolColumns, peak_tps: float, servers: int, degrees: tuple[int, ...], numbers: np.ndarray, parked_w: float
) -> Division:
    """Return the least-power one of divisions, `numbers` of shape (divisions, degrees), that carry the peak."""
    able = np.array([offer.largest(tp) for tp in degrees])
    fits = numbers @ able >= peak_tps * (1 - 1e-9)
    carries = bool(fits.any())
    numbers = numbers[fits] if carries else numbers[[(numbers @ able).argmax()]]
    relative = np.minimum(peak_tps / (numbers @ able), 1.0)
    power_w = parked_w * (SERVER_GPUS * servers - numbers @ np.array(degrees))
    for place, tp in enumerate(degrees):
        power_w = power_w + numbers[:, place] * offer.top_power_w(tp, relative)
    best = int(power_w.argmin())
    counts = {tp: int(number) for tp, number in zip(degrees, numbers[best]) if number}
    return Division(counts, float(power_w[best]), carries)


@lru_cache(maxsize=32)
def _divisions(servers: int, degrees: tuple[int, ...]) -> np.ndarray:
    """Return every way to put instances of these degrees on the servers' GPUs, at least one: (ways, degrees)."""
    gpus = SERVER_GPUS * servers
    axes = np.meshgrid(*(np.arange(gpus // tp + 1) for tp in degrees), indexing="ij")
    numbers = np.stack([axis.ravel() for axis in axes], axis=1)
    used = numbers @ np.array(degrees)
    return numbers[(used <= gpus) & (used > 0)]


def epoch(cluster: Cluster) -> None:
    """Who serves what with the servers that are there, and how each pool's are divided."""
    if not cluster.active:
        return
    settings = cluster.settings
    counts = cluster.fleet.on_by_pool()
    loads = cluster.forecast.between(cluster.now_s, cluster.now_s + settings.pool_epoch_s, cluster.now_s)
    plan = spread(cluster.pools, cluster.columns, loads, counts)
    cluster.fleet.adopt(plan)
    for pool, count in enumerate(counts):
        # a division that is under way is finished first
        if count and cluster.fleet.changing[pool] is None:
            _divide(cluster, pool, plan.loads[pool])
    cluster.agenda.at(cluster.now_s + settings.pool_epoch_s, epoch, cluster)


def _divide(cluster: Cluster, pool: int, load: np.ndarray) -> None:
    """Adopt the pool's best division into instances, if it saves more than the change takes. load: (slots,)."""
    servers = [server for server in cluster.fleet.servers if server.pool == pool and server.state == ON]
    if not servers:
        return
    before = [server.layout for server in servers]
    wanted = layouts(cluster, pool, len(servers), load)
    after = [wanted[place] for place in assign(before, wanted)]
    now, then = (_priced(cluster, pool, divided, load) for divided in (before, after))
    saved_j = (now.power_w - then.power_w) * cluster.settings.pool_epoch_s
    if now.carries and not (then.carries and saved_j > _change_j(cluster, before, after)):
        return
    cluster.fleet.plans[pool].extend((server, new) for server, old, new in zip(servers, before, after) if old != new)
    cluster.fleet.change_next(pool)


def layouts(cluster: Cluster, pool: int, servers: int, load: np.ndarray) -> list[Layout]:
    """Return the least-power division of a pool's servers, server by server."""
    begun = time.process_time()
    offer, peak_tps, degrees = cluster.fleet.offers[pool], float(load.max()), cluster.columns.degrees
    division = divide(offer, peak_tps, servers, degrees, cluster.machine.parked_w)
    cluster.solve_s.append(time.process_time() - begun)
    return layouts_for(division.counts, servers)


def _priced(cluster: Cluster, pool: int, divided: Sequence[Layout], load: np.ndarray) -> Division:
    """Return a pool divided so, under a load."""
    degrees = [tp for layout in divided for tp in layout]
    counts = {tp: degrees.count(tp) for tp in set(degrees)}
    return priced(cluster.fleet.offers[pool], float(load.max()), len(divided), counts, cluster.machine.parked_w)


def _change_j(cluster: Cluster, before: Sequence[Layout], after: Sequence[Layout]) -> float:
    """Return the energy of changing layouts: the changed servers' GPUs idle meanwhile."""
    settings, seconds = cluster.settings, 0.0
    for old, new in zip(before, after):
        if old != new:
            moved = units(old, new)
            seconds += settings.reload_s if moved is None else moved * settings.reshard_unit_s
            seconds += settings.reshard_gap_s if new else 0.0
    return seconds * SERVER_GPUS * cluster.machine.parked_w
