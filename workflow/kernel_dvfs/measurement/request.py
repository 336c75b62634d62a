"""What is asked to be measured: a target at a clock pair, so many repeats.

The form in which a sweep, a search and a refinement say what they need, and in which a pool says what it reads.
"""

from kernel_dvfs.gpu.clocks import Pair, label
from kernel_dvfs.measurement import campaign
from kernel_dvfs.tuples import named

Request = named(
    "Request",
    "kind target core_mhz mem_mhz repeats",
    """Measure one target at one clock pair: one record r<k>.json for each k of `repeats`.

kind: `kernel` or `pass`. target: its name. core_mhz, mem_mhz: whole MHz or AUTO. repeats: numbers of the repeats,
ascending; a sweep's is 0 (0 .. auto_repeats - 1 at auto, auto), measuring again goes on from there.""",
)


def sweep(setup, pairs: list, auto_repeats: int, kinds=("kernel", "pass")) -> list:
    """Every target at every pair, as a sweep measures them."""
    return [
        Request(kind, name, *pair, tuple(range(campaign.repeats(pair, auto_repeats))))
        for kind in kinds
        for name in setup.targets[kind]
        for pair in pairs
    ]


def merged(requests: list) -> dict:
    """{(kind, target): {Pair: [repeats]}}: everything asked for, each repeat once, ascending."""
    asked = {}
    for each in requests:
        pairs = asked.setdefault((each.kind, each.target), {})
        pairs.setdefault(Pair(each.core_mhz, each.mem_mhz), set()).update(each.repeats)
    return {target: {pair: sorted(repeats) for pair, repeats in pairs.items()} for target, pairs in asked.items()}


def path(request, repeat: int) -> str:
    """Where the record of one repeat lies under `measurements`."""
    return f"{request.kind}/{request.target}/{label((request.core_mhz, request.mem_mhz))}/r{repeat}.json"


def to_json(requests: list) -> list:
    """Requests as they stand in a file: [kind, target, core_mhz, mem_mhz, [repeats]]."""
    return [[*each[:4], list(each.repeats)] for each in requests]


def from_json(content: list) -> list:
    """Requests of a file."""
    return [Request(*each[:4], tuple(each[4])) for each in content]
