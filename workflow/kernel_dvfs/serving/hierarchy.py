"""What deciding by levels costs against deciding all at once, on the same loads and the same columns.

By levels: servers per pool at full power (sizing), then degrees within each pool's servers at the highest clock
(allocation), then each instance's clock. At once: one allocation over all classes, degrees and clocks. Loads are those
of hindsight and changes are free, so the difference is the hierarchy's alone; the joint optimum is a bound for the
simulated systems in so far as the profile describes an instance.
"""

from collections import namedtuple

import numpy as np

from kernel_dvfs.serving import sizing
from kernel_dvfs.serving.allocation import allocate
from kernel_dvfs.serving.classes import dominates
from kernel_dvfs.serving.resharding import SERVER_GPUS

Planned = namedtuple("Planned", "power_w shed_tps solve_s servers columns")
Planned.__doc__ = """One decision: W of all servers that are on, tokens/s not carried, CPU seconds, servers on; the
columns that were open to it."""


def by_levels(pools: list, columns, loads, servers: int, parked_w: float, cluster_loads=None) -> Planned:
    """The three controllers in turn. cluster_loads: what servers are counted for; None: loads."""
    first = sizing.size(pools, columns, loads if cluster_loads is None else cluster_loads, servers)
    plan = sizing.spread(pools, columns, loads, first.servers)
    power_w, shed, solve_s = 0.0, plan.short_tps, 0.0
    open_columns = [column for offer in plan.offers for column in offer.columns]
    for offer, count, load in zip(plan.offers, plan.servers, plan.loads):
        if not count:
            continue
        found = allocate(offer.at_top(), {offer.kind: load}, servers=count, parked_w=parked_w, fixed_servers=True)
        solve_s += found.solve_s
        shed += sum(found.shed_tps.values())
        # the instance's clock: the least power of any that carries as much
        for column, number in found.chosen.items():
            slower = [each for each in offer.columns if each.tp == column.tp and each.tps >= column.tps * (1 - 1e-12)]
            power_w += number * min(each.power_w for each in slower)
        power_w += parked_w * (SERVER_GPUS * count - found.gpus)
    return Planned(power_w, shed, solve_s, sum(plan.servers), open_columns)


def at_once(columns, loads, servers: int, parked_w: float, also=(), **options) -> Planned:
    """One optimisation over all classes, degrees and clocks.

    Open to it: instances for one class alone, instances for a class and all smaller ones, and what is given in `also`:
    the hierarchy's own pools, so that whatever it can do can be done here.
    """
    offers = []
    for kind in range(len(loads)):
        smaller = {each for each, load in enumerate(loads) if load > 0 and dominates(kind, each)}
        offers += [columns.pool(kind), columns.pool(kind, smaller)]
    offered = list(dict.fromkeys([*(column for offer in offers for column in offer.columns), *also]))
    own = {kind: float(load) for kind, load in enumerate(loads) if load > 0}
    found = allocate(offered, own, servers=servers, parked_w=parked_w, **options)
    return Planned(found.power_w, sum(found.shed_tps.values()), found.solve_s, found.servers, offered)


def compare(pools: list, columns, loads: np.ndarray, epoch_s: float, cluster_epoch_s: float, servers: int, parked_w):
    """[(start_s, by levels, at once)] for loads (slots of epoch_s, classes); servers are counted per cluster epoch."""
    slots = max(1, round(cluster_epoch_s / epoch_s))
    rows = []
    for slot in range(len(loads)):
        longer = loads[slot - slot % slots : slot - slot % slots + slots].max(0)
        levels = by_levels(pools, columns, loads[slot], servers, parked_w, longer)
        rows.append((slot * epoch_s, levels, at_once(columns, loads[slot], servers, parked_w, levels.columns)))
    return rows
