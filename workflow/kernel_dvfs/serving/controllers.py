"""The three controllers: servers per pool, degrees within a pool, clock of an instance.

A static system has the first decision made once, for its peak. Servers and degrees are decided on forecast loads, the
clock on what the instance has just done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernel_dvfs.serving.allocation import allocate, by_degree
from kernel_dvfs.serving.columns import mhz
from kernel_dvfs.serving.pools import FULL_TP, Sizing, size, spread, static
from kernel_dvfs.serving.resharding import SERVER_GPUS, Layout, assign, layouts_for, units
from kernel_dvfs.serving.servers import DRAINING, OFF, ON, STARTING

if TYPE_CHECKING:
    from kernel_dvfs.serving.cluster import Cluster


def begin(cluster: Cluster) -> None:
    """Servers and instances for the first epoch, there at no cost, and the controllers' clocks."""
    own, system = cluster.settings, cluster.system
    if system.scale_instances:
        plan = _size(cluster, 0.0)
    else:
        whole = cluster.forecast.loads.max(0)
        plan = static(cluster.pools, cluster.columns, whole, own.servers)
    cluster.fleet.adopt(plan)
    free = iter(cluster.fleet.servers)
    for pool, count in enumerate(plan.servers):
        servers = [next(free) for _ in range(count)]
        layouts: list[Layout] = [(FULL_TP,)] * count
        if system.scale_sharding and count:
            layouts = _layouts(cluster, pool, count, plan.loads[pool])
        for server, layout in zip(servers, layouts):
            cluster.fleet.take(server, pool, layout)
    if system.scale_instances:
        ahead = min(own.start_s, own.cluster_epoch_s)
        # an epoch shorter than a start: as early as can be
        cluster.agenda.at(own.cluster_epoch_s - ahead, _prepare, cluster, own.cluster_epoch_s)
        cluster.agenda.at(own.cluster_epoch_s, _cluster_epoch, cluster)
    if system.scale_sharding:
        cluster.agenda.at(own.pool_epoch_s, _pool_epoch, cluster)
    if system.scale_clock:
        cluster.agenda.at(0.0, _clock_epoch, cluster)
    cluster.agenda.at(0.0, _sample, cluster)


# -- cluster manager: servers per pool -------------------------------------------------------------------------------


def _size(cluster: Cluster, start_s: float) -> Sizing:
    loads = cluster.forecast.peak(start_s, start_s + cluster.settings.cluster_epoch_s)
    plan = size(cluster.pools, cluster.columns, loads, cluster.settings.servers)
    if plan.short_tps > 0:
        cluster.events["epochs with too few servers"] += 1
        cluster.short_tps = max(cluster.short_tps, plan.short_tps)
    return plan


def _prepare(cluster: Cluster, epoch_s: float) -> None:
    """Start servers in time for the epoch that begins at epoch_s."""
    if not cluster.active:
        return
    wanted = sum(_size(cluster, epoch_s).servers)
    have = sum(server.state not in (OFF, DRAINING) for server in cluster.fleet.servers)
    for server in [each for each in cluster.fleet.servers if each.state == DRAINING][: max(0, wanted - have)]:
        cluster.fleet.keep(server)
        have += 1
    for server in [each for each in cluster.fleet.servers if each.state == OFF][: max(0, wanted - have)]:
        cluster.fleet.start(server)
    following_s = epoch_s + cluster.settings.cluster_epoch_s
    cluster.agenda.at(following_s - cluster.settings.start_s, _prepare, cluster, following_s)


def _cluster_epoch(cluster: Cluster) -> None:
    """Servers change pools; those that are not needed finish what they have and go."""
    if not cluster.active:
        return
    plan = _size(cluster, cluster.now_s)
    cluster.fleet.adopt(plan)
    held = [
        [each for each in cluster.fleet.servers if each.pool == pool and each.state not in (OFF, DRAINING)]
        for pool in range(len(cluster.pools))
    ]
    spare = [each for each in cluster.fleet.servers if each.pool is None and each.state in (ON, STARTING)]
    for servers, count in zip(held, plan.servers):
        # the emptiest leave first
        servers.sort(key=lambda each: -sum(replica.outstanding for replica in each.replicas))
        extra = servers[count:]
        # one that is being divided stays with its pool until it is done
        spare += [each for each in extra if each.state == ON]
        servers[:] = servers[:count]
    for pool, (servers, count) in enumerate(zip(held, plan.servers)):
        while len(servers) < count and spare:
            server = spare.pop()
            cluster.fleet.move(server, pool)
            servers.append(server)
        if len(servers) < count:
            cluster.events["servers not there in time"] += count - len(servers)
    for server in spare:
        if server.pool is None:
            cluster.fleet.move(server, len(cluster.pools) - 1)
        if server.state == ON:
            cluster.fleet.drain(server)
    cluster.router.retry_backlog()
    cluster.agenda.at(cluster.now_s + cluster.settings.cluster_epoch_s, _cluster_epoch, cluster)


# -- pool manager: degrees -------------------------------------------------------------------------------------------


def _pool_epoch(cluster: Cluster) -> None:
    if not cluster.active:
        return
    own = cluster.settings
    counts = [0] * len(cluster.pools)
    for server in cluster.fleet.servers:
        if server.pool is not None and server.state not in (OFF, DRAINING, STARTING):
            counts[server.pool] += 1
    loads = cluster.forecast.peak(cluster.now_s, cluster.now_s + own.pool_epoch_s)
    plan = spread(cluster.pools, cluster.columns, loads, counts)
    cluster.fleet.adopt(plan)
    for pool, count in enumerate(counts):
        cluster.fleet.plans[pool].clear()
        if count and cluster.fleet.changing[pool] is None:
            _divide(cluster, pool, plan.loads[pool])
    cluster.agenda.at(cluster.now_s + own.pool_epoch_s, _pool_epoch, cluster)


def _divide(cluster: Cluster, pool: int, load: float) -> None:
    """Adopt the pool's best division into instances, if it saves more than the change takes."""
    servers = [each for each in cluster.fleet.servers if each.pool == pool and each.state == ON]
    if not servers:
        return
    before = [server.layout for server in servers]
    wanted = _layouts(cluster, pool, len(servers), load)
    after = [wanted[place] for place in assign(before, wanted)]
    epoch_s = cluster.settings.pool_epoch_s
    now_w, then_w = (_power_w(cluster, pool, layouts, load) for layouts in (before, after))
    if now_w is not None and (
        then_w is None or now_w * epoch_s <= then_w * epoch_s + _change_j(cluster, before, after)
    ):
        return
    cluster.fleet.plans[pool].extend((server, new) for server, old, new in zip(servers, before, after) if old != new)
    cluster.fleet.change_next(pool)


def _layouts(cluster: Cluster, pool: int, servers: int, load: float) -> list[Layout]:
    """The least-power division of a pool's servers at the highest clock, by the optimisation within its GPUs."""
    kind = cluster.pools[pool].kind
    found = allocate(
        cluster.fleet.offers[pool].at_top(),
        {kind: max(load, 1.0)},
        servers=servers,
        parked_w=cluster.machine.parked_w,
        fixed_servers=True,
    )
    cluster.solve_s.append(found.solve_s)
    counts = by_degree(found)
    if not counts or found.shed_tps:
        return [(FULL_TP,)] * servers
    return layouts_for(counts, servers)


def _power_w(cluster: Cluster, pool: int, layouts: Sequence[Layout], load: float) -> float | None:
    """Power of a pool divided so, at a load shared by capacity and at the highest clocks; None: it cannot carry it."""
    offer = cluster.fleet.offers[pool]
    degrees = [tp for layout in layouts for tp in layout]
    able = [offer.largest(tp) for tp in degrees]
    if sum(able) < load or not degrees:
        return None
    shares = zip(degrees, able)
    busy_w = sum(offer.power_w(tp, cluster.columns.top(tp), load * most / sum(able)) for tp, most in shares)
    return busy_w + cluster.machine.parked_w * (SERVER_GPUS * len(layouts) - sum(degrees))


def _change_j(cluster: Cluster, before: Sequence[Layout], after: Sequence[Layout]) -> float:
    """Energy of changing layouts: the changed servers' GPUs idle meanwhile."""
    own, seconds = cluster.settings, 0.0
    for old, new in zip(before, after):
        if old != new:
            moved = units(old, new)
            seconds += own.reload_s if moved is None else moved * own.reshard_unit_s
            seconds += own.reshard_gap_s if new else 0.0
    return seconds * SERVER_GPUS * cluster.machine.parked_w


# -- instance manager: clocks ----------------------------------------------------------------------------------------


def _clock_epoch(cluster: Cluster) -> None:
    if not cluster.active:
        return
    own, now_s = cluster.settings, cluster.now_s
    for pool, replicas in enumerate(cluster.router.serving):
        offer = cluster.fleet.offers[pool]
        for replica in replicas:
            done = replica.instance.processed(now_s)
            load = max(done - replica.processed, replica.arrived) / own.clock_epoch_s
            replica.processed, replica.arrived = done, 0.0
            if now_s < replica.held_until_s:
                cluster.fleet.set_clock(replica, cluster.columns.top(replica.tp))
            else:
                wanted = offer.least_power_clock(replica.tp, own.clock_margin * load)
                cluster.fleet.set_clock(replica, wanted)
    cluster.agenda.at(now_s + own.clock_epoch_s, _clock_epoch, cluster)


def _sample(cluster: Cluster) -> None:
    """What the knobs stand at."""
    if not cluster.active and cluster.now_s > 0:
        return
    states = [server.state for server in cluster.fleet.servers]
    replicas = [replica for server in cluster.fleet.servers for replica in server.replicas]
    gpus = {tp: sum(each.tp for each in replicas if each.tp == tp) for tp in cluster.columns.degrees}
    used = sum(gpus.values())
    cluster.samples.append(
        {
            "time_s": cluster.now_s,
            "servers_on": sum(state != OFF for state in states),
            "servers_starting": states.count(STARTING),
            "instances": len(replicas),
            **{f"gpus_tp{tp}": count for tp, count in gpus.items()},
            "mean_core_mhz": sum(each.tp * mhz(each.clock) for each in replicas) / used if used else 0.0,
            "open_requests": cluster.open,
        }
    )
    cluster.agenda.at(cluster.now_s + cluster.settings.sample_s, _sample, cluster)
