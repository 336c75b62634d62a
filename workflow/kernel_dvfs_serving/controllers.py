"""The three controllers: servers per pool, degrees within a pool, clock of an instance; and what they do in between.

A static system has the first decision made once, for its peak. Servers and degrees are decided on forecast loads, the
clock on what the instance has just done and on the promises that its pool has just kept. Between epochs (settings
`react`) servers are started where the load that comes is more than those there are carry.

When a queue grows, a ladder of four steps, one more each second that the trouble lasts: 1 earliest deadline first; 2
highest clock; 3 unstarted requests to the next larger pool; 4 those past their deadline are rejected, counted and
reported. Trouble: a queued request has used more than a share of its time to the first token (settings queue_share,
queue_patience_s and clock_hold_s: the sources name the steps, not these; our choice).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernel_dvfs_serving.cluster import Router
from kernel_dvfs_serving.pools import FULL_TP, Sizing, size, spread, static
from kernel_dvfs_serving.pricing import Division, Pricing, choose_servers, divide, priced
from kernel_dvfs_serving.resharding import SERVER_GPUS, Layout, assign, layouts_for, units
from kernel_dvfs_serving.servers import DRAINING, OFF, ON, STARTING

if TYPE_CHECKING:
    from kernel_dvfs_serving.cluster import Cluster
    from kernel_dvfs_serving.servers import Replica


def pricing(cluster: Cluster) -> Pricing:
    """How the system's decisions on servers and degrees are priced: with the knobs that it has."""
    own, system = cluster.settings, cluster.system
    return Pricing(
        degrees=tuple(cluster.columns.degrees) if system.scale_sharding else (FULL_TP,),
        clock_margin=own.clock_margin if system.scale_clock else None,
        parked_w=cluster.machine.parked_w,
        peak_only=own.priced_at == "top",
    )


def router(cluster: Cluster) -> Router:
    """By pools, to the least loaded replica."""
    return Router(cluster)


def begin(cluster: Cluster) -> None:
    """Servers and instances for the first epoch, there at no cost, and the controllers' clocks."""
    own, system = cluster.settings, cluster.system
    if system.scale_instances:
        plan = _size(cluster, 0.0, running=None)
    else:
        plan = static(cluster.pools, cluster.columns, cluster.forecast.loads, own.servers)
    cluster.fleet.adopt(plan)
    free = iter(cluster.fleet.servers)
    for pool, count in enumerate(plan.servers):
        servers = [next(free) for _ in range(count)]
        layouts: list[Layout] = [(FULL_TP,)] * count
        if system.scale_sharding and count:
            # the first pool epoch's, so that no server is divided before its first request
            ahead = spread(
                cluster.pools, cluster.columns, cluster.forecast.between(0.0, own.pool_epoch_s), plan.servers
            )
            layouts = _layouts(cluster, pool, count, ahead.loads[pool])
        for server, layout in zip(servers, layouts):
            cluster.fleet.take(server, pool, layout)
    if system.scale_instances:
        ahead_s = min(own.start_s, own.cluster_epoch_s)
        # an epoch shorter than a start: as early as can be
        cluster.agenda.at(own.cluster_epoch_s - ahead_s, _prepare, cluster, own.cluster_epoch_s)
        cluster.agenda.at(own.cluster_epoch_s, _cluster_epoch, cluster)
    if own.react and (system.scale_instances or system.scale_sharding):
        cluster.agenda.at(own.load_slot_s, _watch_load, cluster)
    if system.scale_sharding:
        cluster.agenda.at(own.pool_epoch_s, _pool_epoch, cluster)
    if system.scale_clock:
        cluster.agenda.at(0.0, _clock_epoch, cluster)


# -- cluster manager: servers per pool -------------------------------------------------------------------------------


def _size(cluster: Cluster, start_s: float, running: int | None) -> Sizing:
    """Servers for the epoch from start_s on; running: see choose_servers."""
    own = cluster.settings
    loads = _expected(cluster, start_s, own.cluster_epoch_s)
    start_w = SERVER_GPUS * cluster.machine.parked_w * own.start_s / own.cluster_epoch_s
    plan = choose_servers(cluster.pools, cluster.columns, loads, own.servers, pricing(cluster), running, start_w)
    if plan.short_tps > 0:
        cluster.events["epochs with too few servers"] += 1
        cluster.short_tps = max(cluster.short_tps, plan.short_tps)
    return plan


def _expected(cluster: Cluster, start_s: float, seconds: float) -> np.ndarray:
    """Loads of the slots from start_s on, (slots, classes): the forecast, no less than what has just come unplanned."""
    return np.maximum(cluster.forecast.between(start_s, start_s + seconds, cluster.now_s), cluster.unplanned_tps)


def _running(cluster: Cluster) -> int:
    """Servers that are there, or will be, and are not on their way out."""
    return sum(server.state not in (OFF, DRAINING) for server in cluster.fleet.servers)


def _add_server(cluster: Cluster, pool: int | None) -> None:
    """One server more: one that was leaving, else one that is started, for a pool if one is given."""
    for server in cluster.fleet.servers:
        if server.state == DRAINING:
            cluster.fleet.keep(server)
            return
    for server in cluster.fleet.servers:
        if server.state == OFF:
            cluster.fleet.start(server, pool)
            return


def _prepare(cluster: Cluster, epoch_s: float) -> None:
    """Start servers in time for the epoch that begins at epoch_s."""
    if not cluster.active:
        return
    plan = cluster.prepared[round(epoch_s, 3)] = _size(cluster, epoch_s, _running(cluster))
    for _ in range(sum(plan.servers) - _running(cluster)):
        _add_server(cluster, None)
    following_s = epoch_s + cluster.settings.cluster_epoch_s
    cluster.agenda.at(following_s - cluster.settings.start_s, _prepare, cluster, following_s)


def _cluster_epoch(cluster: Cluster) -> None:
    """Servers change pools; those that are not needed finish what they have and go."""
    if not cluster.active:
        return
    plan = cluster.prepared.pop(round(cluster.now_s, 3), None)
    if plan is None or cluster.unplanned_tps.any():
        plan = _size(cluster, cluster.now_s, _running(cluster))
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


def _watch_load(cluster: Cluster) -> None:
    """Where the last slot brought more than was planned for, or promises break: start servers, divide those there."""
    if not cluster.active:
        return
    own, fleet = cluster.settings, cluster.fleet
    came_tps = cluster.router.arrived_tps(own.load_slot_s)
    planned = cluster.forecast.between(max(0.0, cluster.now_s - own.pool_epoch_s), cluster.now_s)
    surprised = bool(came_tps.sum() > planned.sum(1).max())
    cluster.unplanned_tps = own.margin * came_tps * surprised
    if surprised and cluster.system.scale_instances:
        wanted = size(cluster.pools, cluster.columns, cluster.unplanned_tps[None, :], own.servers).servers
        held = [
            sum(each.pool == pool and each.state not in (OFF, DRAINING) for each in fleet.servers)
            for pool in range(len(cluster.pools))
        ]
        for _ in range(sum(wanted) - _running(cluster)):
            pool = max(range(len(held)), key=lambda each: wanted[each] - held[each])
            cluster.events["servers added between epochs"] += 1
            _add_server(cluster, pool)
            held[pool] += 1
    # a reserve of half: five promises broken in a row, or so
    broken = max(cluster.reserves) >= 0.5
    if fleet.joined or ((surprised or broken) and cluster.system.scale_sharding):
        came, fleet.joined = fleet.joined, False
        _divide_pools(cluster, if_short=not came)
    cluster.agenda.at(cluster.now_s + own.load_slot_s, _watch_load, cluster)


# -- pool manager: degrees -------------------------------------------------------------------------------------------


def _pool_epoch(cluster: Cluster) -> None:
    if not cluster.active:
        return
    _divide_pools(cluster)
    cluster.agenda.at(cluster.now_s + cluster.settings.pool_epoch_s, _pool_epoch, cluster)


def _divide_pools(cluster: Cluster, if_short: bool = False) -> None:
    """Who serves what with the servers that are there, and how each pool's are divided; if_short: those alone that do
    not carry what comes, since what a slot saves is taken back in the next."""
    counts = cluster.fleet.on_by_pool()
    loads = _expected(cluster, cluster.now_s, cluster.settings.pool_epoch_s)
    plan = spread(cluster.pools, cluster.columns, loads, counts)
    cluster.fleet.adopt(plan)
    if not cluster.system.scale_sharding:
        return
    for pool, count in enumerate(counts):
        # a division that is under way is finished first
        if count and cluster.fleet.changing[pool] is None:
            _divide(cluster, pool, plan.loads[pool] * (1 + cluster.reserves[pool]), if_short)


def _divide(cluster: Cluster, pool: int, load: np.ndarray, if_short: bool) -> None:
    """Adopt the pool's best division into instances, if it saves more than the change takes. load: (slots,).

    if_short: see _divide_pools."""
    servers = [each for each in cluster.fleet.servers if each.pool == pool and each.state == ON]
    if not servers:
        return
    before = [server.layout for server in servers]
    wanted = _layouts(cluster, pool, len(servers), load)
    after = [wanted[place] for place in assign(before, wanted)]
    epoch_s = cluster.settings.pool_epoch_s
    now, then = (_priced(cluster, pool, layouts, load) for layouts in (before, after))
    saved_j = (now.power_w - then.power_w) * epoch_s
    if now.carries and (if_short or not (then.carries and saved_j > _change_j(cluster, before, after))):
        return
    cluster.fleet.plans[pool].extend((server, new) for server, old, new in zip(servers, before, after) if old != new)
    cluster.fleet.change_next(pool)


def _layouts(cluster: Cluster, pool: int, servers: int, load: np.ndarray) -> list[Layout]:
    """The least-power division of a pool's servers."""
    begun = time.process_time()
    found = divide(cluster.fleet.offers[pool], load, servers, pricing(cluster))
    cluster.solve_s.append(time.process_time() - begun)
    return layouts_for(found.counts, servers)


def _priced(cluster: Cluster, pool: int, layouts: Sequence[Layout], load: np.ndarray) -> Division:
    """A pool divided so, under a load."""
    degrees = [tp for layout in layouts for tp in layout]
    counts = {tp: degrees.count(tp) for tp in set(degrees)}
    return priced(cluster.fleet.offers[pool], load, len(layouts), counts, pricing(cluster))


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
                cluster.fleet.set_clock(
                    replica, offer.least_power_clock(replica.tp, _clock_load(cluster, replica, load))
                )
    cluster.agenda.at(now_s + own.clock_epoch_s, _clock_epoch, cluster)


def _clock_load(cluster: Cluster, replica: Replica, load: float) -> float:
    """The load that a clock is set for: with the margin, and with the reserve that the pool's promises ask for."""
    assert replica.server.pool is not None
    return cluster.settings.clock_margin * load + cluster.reserves[replica.server.pool] * replica.capacity


def raise_clock(cluster: Cluster, replica: Replica) -> None:
    """More has come since the last epoch than the present clock carries in a whole one: at once the clock for it."""
    own, offer = cluster.settings, cluster.fleet.offers[replica.server.pool or 0]
    wanted = offer.least_power_clock(replica.tp, _clock_load(cluster, replica, replica.arrived / own.clock_epoch_s))
    if int(wanted) > int(replica.clock):
        cluster.events["clocks raised between epochs"] += 1
        cluster.fleet.set_clock(replica, wanted)


# -- when a queue grows ------------------------------------------------------------------------------------------------


def watch_queue(cluster: Cluster, replica: Replica) -> None:
    """Look again when the oldest queued request has used its share of its time."""
    replica.watched = True
    cluster.agenda.at(_trouble_s(cluster, replica), _check, cluster, replica)


def _trouble_s(cluster: Cluster, replica: Replica) -> float:
    """When the first of the queued requests has used its share of its time."""
    share = cluster.settings.queue_share
    return min(each.arrival_s + share * (each.deadline_s - each.arrival_s) for each in replica.instance.waiting) + 1e-6


def _check(cluster: Cluster, replica: Replica) -> None:
    now_s, waiting = cluster.now_s, replica.instance.waiting
    if not waiting or not replica.serving:
        if replica.stage >= 2:
            replica.held_until_s = now_s + cluster.settings.clock_hold_s
        replica.stage, replica.watched = 0, False
        return
    trouble_s = _trouble_s(cluster, replica)
    if trouble_s > now_s:
        # the queue has moved on; those behind have time
        replica.stage = 0
        cluster.agenda.at(trouble_s, _check, cluster, replica)
        return
    replica.stage = min(replica.stage + 1, 4)
    cluster.events[f"emergency step {replica.stage}"] += 1
    replica.instance.order_by_deadline()
    if replica.stage >= 2:
        replica.held_until_s = now_s + cluster.settings.clock_hold_s
        cluster.fleet.set_clock(replica, cluster.columns.top(replica.tp))
    if replica.stage >= 3:
        _send_up(cluster, replica)
    if replica.stage >= 4:
        _reject_late(cluster, replica)
    cluster.agenda.at(now_s + cluster.settings.queue_patience_s, _check, cluster, replica)


def _send_up(cluster: Cluster, replica: Replica) -> None:
    """Unstarted requests to larger pools' replicas, as long as those are less loaded."""
    for request in replica.instance.take_waiting():
        target = cluster.router.choose(request, above=replica.server.pool)
        replica.outstanding -= cluster.router.expected_tokens(request)
        if target is not None and target.relative_load >= replica.relative_load:
            target = None
        cluster.events["sent to a larger pool"] += target is not None
        if target is not None:
            cluster.router.deliver(request, target)
        else:
            cluster.router.put_back(request, replica)
    cluster.router.follow(replica)


def _reject_late(cluster: Cluster, replica: Replica) -> None:
    for request in replica.instance.take_waiting():
        replica.outstanding -= cluster.router.expected_tokens(request)
        if request.deadline_s < cluster.now_s and not request.again:
            cluster.reject(request)
        else:
            cluster.router.put_back(request, replica)
    cluster.router.follow(replica)
