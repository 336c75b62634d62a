"""DynamoLLM's control (arXiv 2408.00741) and its baselines, which turn a part of its knobs: who is there before the
first request, and which managers run. A level each: cluster_manager.py, pool_manager.py, instance_manager.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs_serving import cluster_manager, instance_manager, pool_manager
from kernel_dvfs_serving.cluster import Router
from kernel_dvfs_serving.pools import FULL_TP, spread, static

if TYPE_CHECKING:
    from kernel_dvfs_serving.cluster import Cluster
    from kernel_dvfs_serving.resharding import Layout
    from kernel_dvfs_serving.servers import Replica


def router(cluster: Cluster) -> Router:
    """Return the router by pools, to the least loaded replica."""
    return Router(cluster)


def begin(cluster: Cluster) -> None:
    """Begin with the first epoch's servers and instances, there at no cost, and the managers' clocks."""
    settings, system = cluster.settings, cluster.system
    if system.scale_instances:
        plan = cluster_manager.sized(cluster, 0.0)
    else:
        plan = static(cluster.pools, cluster.columns, cluster.forecast.loads, settings.servers)
    cluster.fleet.adopt(plan)
    free = iter(cluster.fleet.servers)
    for pool, count in enumerate(plan.servers):
        servers = [next(free) for _ in range(count)]
        layouts: list[Layout] = [(FULL_TP,)] * count
        if system.scale_sharding and count:
            # the first pool epoch's, so that no server is divided before its first request
            loads = cluster.forecast.between(0.0, settings.pool_epoch_s)
            ahead = spread(cluster.pools, cluster.columns, loads, plan.servers)
            layouts = pool_manager.layouts(cluster, pool, count, ahead.loads[pool])
        for server, layout in zip(servers, layouts):
            cluster.fleet.take(server, pool, layout)
    if system.scale_instances:
        cluster_manager.begin(cluster)
    if system.scale_sharding:
        cluster.agenda.at(settings.pool_epoch_s, pool_manager.epoch, cluster)
    if system.scale_clock:
        cluster.agenda.at(0.0, instance_manager.epoch, cluster)


def watch_queue(cluster: Cluster, replica: Replica) -> None:
    """See instance_manager.watch_queue."""
    instance_manager.watch_queue(cluster, replica)
