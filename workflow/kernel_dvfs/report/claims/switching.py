"""The claim on the latency of clock changes (the paper's section 9): what it does to the strict schedule."""

from collections import namedtuple

from kernel_dvfs.report.claims import evidence
from kernel_dvfs.report.claims.claim import Finding, claim, percent
from kernel_dvfs.workload.passes import launch_order as workload_order

# Latency worsens the potential once a tenth of the time runs at clocks that were chosen for another kernel.
WRONG_CLOCKS_SHARE = 0.1

Latency = namedtuple("Latency", "launches changes core_changes mem_changes waiting_s own_s total_s shorter kernels")
Latency.__doc__ = """An iteration in order of its launches: their number; changes of the clocks that run, of
core, of memory; sum of the median latencies, s; time at its own clocks, s; time, s; kernels shorter than the
latency of their change; kernels."""


@claim(28, "Switching latency longer than kernels worsens the potential", "9")
def switching(results) -> Finding:
    spec = evidence.simulated_spec(results, "the latency of a clock change")
    found = latency(results, spec["switching"])
    own = found.own_s / found.total_s
    saved = evidence.schedule(results, evidence.STRICT)["energy_change_percent"]
    core, mem = (1e3 * spec["switching"][domain]["median_s"] for domain in ("core", "mem"))
    return Finding(
        f"{found.changes} clock changes ({found.core_changes} of core, {found.mem_changes} of memory) in"
        f" {found.launches} launches, their median latencies together {found.waiting_s:.1f} s beside an"
        f" iteration of {found.total_s:.1f} s; {found.shorter} of {found.kernels} kernels are shorter than"
        f" the latency of their change; {100 * own:.0f} % of the time runs at its own clocks",
        bool(found.shorter and own < 1 - WRONG_CLOCKS_SHARE),
        f"schedule {evidence.STRICT} in launch order, layer by layer, with the spec's medians ({core:g} ms"
        f" core, {mem:g} ms memory), which are an assumption, not a measurement: the old clocks rule until a"
        f" change is through, so that the {percent(saved)} claimed are those of a GPU that switches at once",
    )


def latency(results, switching: dict) -> Latency:
    """What changing clocks costs in an iteration of the strict schedule, at median latencies.

    A change is asked for as a kernel starts; the clocks before rule until it or the next one is through.
    """
    rows = evidence.strict(results)
    pair = {name: (row.core, row.mem) for name, row in rows.iterrows()}
    order = launch_order(evidence.setup(results).targets)
    median = {domain: switching[domain]["median_s"] for domain in ("core", "mem")}
    changes = {"core": 0, "mem": 0}
    total = waiting = own = 0.0
    count_, pending, shorter = 0, 0.0, set()
    for before, name in zip([order[-1], *order], order):  # iterations follow one another
        time_s = rows.time_s[name]
        changed = [domain for domain, old, new in zip(("core", "mem"), pair[before], pair[name]) if _differ(old, new)]
        if changed:
            pending = max(median[domain] for domain in changed)
            count_ += 1
            waiting += pending
            for domain in changed:
                changes[domain] += 1
            if time_s < pending:
                shorter.add(name)
        total += time_s
        own += max(0.0, time_s - pending)
        pending = max(0.0, pending - time_s)
    return Latency(len(order), count_, changes["core"], changes["mem"], waiting, own, total, len(shorter), len(rows))


def _differ(one: float, other: float) -> bool:
    return min(one, other) < (1 - evidence.LOWER_SHARE) * max(one, other)


def launch_order(targets: dict) -> list:
    """Ids of the kernels in the order of their launches: pass by pass, rows of one repeat as whole layers."""
    rank = {name: number for number, name in enumerate(("forward", "loss", "backward"))}
    passes = sorted(targets["pass"].items(), key=lambda each: rank.get(each[0], len(rank)))
    return [name for _, rows in passes for name in workload_order(rows)]


CLAIMS = (switching,)
