"""DynamoLLM's cluster manager: servers per pool, every half hour, for the peak that is forecast. Servers are started in
time for the epoch that needs them; those that are not needed finish what they have and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs_serving.pools import Sizing, size
from kernel_dvfs_serving.servers import DRAINING, OFF, ON, STARTING

if TYPE_CHECKING:
    from kernel_dvfs_serving.cluster import Cluster


def begin(cluster: Cluster) -> None:
    """Put the epochs on the agenda."""
    settings = cluster.settings
    # an epoch shorter than a start: as early as can be
    ahead_s = min(settings.start_s, settings.cluster_epoch_s)
    cluster.agenda.at(settings.cluster_epoch_s - ahead_s, _prepare, cluster, settings.cluster_epoch_s)
    cluster.agenda.at(settings.cluster_epoch_s, _epoch, cluster)


def sized(cluster: Cluster, start_s: float) -> Sizing:
    """Return the sizing for the epoch from start_s on, by what was known now."""
    settings = cluster.settings
    loads = cluster.forecast.between(start_s, start_s + settings.cluster_epoch_s, cluster.now_s)
    plan = size(cluster.pools, cluster.columns, loads, settings.servers)
    if plan.short_tps > 0:
        cluster.events["epochs with too few servers"] += 1
        cluster.short_tps = max(cluster.short_tps, plan.short_tps)
    return plan


def _running(cluster: Cluster) -> int:
    """Return how many servers are there, or will be, and are not on their way out."""
    return sum(server.state not in (OFF, DRAINING) for server in cluster.fleet.servers)


def _add_server(cluster: Cluster) -> None:
    """One server more: one that was leaving, else one that is started."""
    for state, take in ((DRAINING, cluster.fleet.keep), (OFF, cluster.fleet.start)):
        for server in cluster.fleet.servers:
            if server.state == state:
                take(server)
                return


def _prepare(cluster: Cluster, epoch_s: float) -> None:
    """Start servers in time for the epoch that begins at epoch_s."""
    if not cluster.active:
        return
    plan = cluster.prepared[round(epoch_s, 3)] = sized(cluster, epoch_s)
    for _ in range(sum(plan.servers) - _running(cluster)):
        _add_server(cluster)
    following_s = epoch_s + cluster.settings.cluster_epoch_s
    cluster.agenda.at(following_s - cluster.settings.start_s, _prepare, cluster, following_s)


def _epoch(cluster: Cluster) -> None:
    """Servers change pools; those that are not needed finish what they have and go."""
    if not cluster.active:
        return
    plan = cluster.prepared.pop(round(cluster.now_s, 3), None) or sized(cluster, cluster.now_s)
    cluster.fleet.adopt(plan)
    held = [
        [server for server in cluster.fleet.servers if server.pool == pool and server.state not in (OFF, DRAINING)]
        for pool in range(len(cluster.pools))
    ]
    spare = [server for server in cluster.fleet.servers if server.pool is None and server.state in (ON, STARTING)]
    for servers, count in zip(held, plan.servers):
        # the emptiest leave first
        servers.sort(key=lambda server: -sum(replica.outstanding for replica in server.replicas))
        extra = servers[count:]
        # one that is being divided stays with its pool until it is done
        spare += [server for server in extra if server.state == ON]
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
    cluster.agenda.at(cluster.now_s + cluster.settings.cluster_epoch_s, _epoch, cluster)
