"""DynamoLLM's instance manager: the clock of each replica, every five seconds, for what it has just done; and what
happens when a queue grows.

A ladder of four steps, one more each second that the trouble lasts: 1 earliest deadline first; 2 highest clock;
3 unstarted requests to the next larger pool; 4 those past their deadline are rejected, counted and reported. Trouble: a
queued request has used more than a share of its time to the first token (settings queue_share, queue_patience_s and
clock_hold_s: the sources name the steps, not these; our choice).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_dvfs_serving.cluster import Cluster
    from kernel_dvfs_serving.servers import Replica


def epoch(cluster: Cluster) -> None:
    """The clock that draws least within the promises, at the load of the last epoch with its margin."""
    if not cluster.active:
        return
    settings, now_s = cluster.settings, cluster.now_s
    for pool, replicas in enumerate(cluster.router.serving):
        offer = cluster.fleet.offers[pool]
        for replica in replicas:
            done = replica.instance.processed(now_s)
            load = max(done - replica.processed, replica.arrived) / settings.clock_epoch_s
            replica.processed, replica.arrived = done, 0.0
            held = now_s < replica.held_until_s
            top = cluster.columns.top(replica.tp)
            clock = top if held else offer.least_power_clock(replica.tp, settings.clock_margin * load)
            cluster.fleet.set_clock(replica, clock)
    cluster.agenda.at(now_s + settings.clock_epoch_s, epoch, cluster)


# -- when a queue grows ------------------------------------------------------------------------------------------------


def watch_queue(cluster: Cluster, replica: Replica) -> None:
    """Look again when the oldest queued request has used its share of its time."""
    replica.watched = True
    cluster.agenda.at(_trouble_s(cluster, replica), _check, cluster, replica)


def _trouble_s(cluster: Cluster, replica: Replica) -> float:
    """Return when the first of the queued requests has used its share of its time."""
    share = cluster.settings.queue_share
    waiting = replica.instance.waiting
    return min(request.arrival_s + share * (request.deadline_s - request.arrival_s) for request in waiting) + 1e-6


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
        if request.deadline_s < cluster.now_s and not request.generated:
            cluster.reject(request)
        else:
            cluster.router.put_back(request, replica)
    cluster.router.follow(replica)
