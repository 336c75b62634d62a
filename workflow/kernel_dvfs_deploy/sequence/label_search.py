"""Two searches by labels for what a price of time alone does not find: a choice that uses the whole limit up.

`best_mixture` looks at the union of a few known choices: wherever two are at the same pair with nothing under way, one
may go on as the other. `search` looks at every choice that could still be better than the best known one.

A label is a partial choice: a node (boundary, pair) with the time and energy so far. Its reduced cost is what it costs
at the price of time above the best of all; whatever continues it costs at least that much more than the bound. Labels
above the gap are dropped, those that end too late as well, and of labels at one node those that another one matches in
time and energy. Where too many are left, those of like time are thinned out to the cheapest. A mixture loses no proof
by that, since its bound is the programme's; `search` says that it was not complete, so that only the bound from before
is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernel_dvfs.choice.dominance import pareto
from kernel_dvfs_deploy.sequence.changes import Changes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from kernel_dvfs_deploy.sequence.chains import Chain

    Node: TypeAlias = tuple[int, int]  # (boundary, pair)
    # (N + 1, P) each: least cost, least time from each state to the end in a pair
    Ways: TypeAlias = tuple[np.ndarray, np.ndarray]
    Edges: TypeAlias = dict[tuple[Node, Node], Sequence[float]]  # {(from, to): (time s, energy J)}

_LABELS = 400  # kept at a node by best_mixture


def best_mixture(
    chain: Chain, choices: Sequence[Changes], price: float, values: np.ndarray, limit_s: float, gap_j: float
) -> Changes | None:
    """Return the mixture of least energy within the limit; None where none beats the gap.

    choices: all with the same first pair. price: of time, W. values: (N + 1, P) least cost at it from each state to the
    end in that pair. gap_j: energy of the best known choice above the bound.
    """
    first = choices[0].first
    edges = _edges(chain, choices)
    into: dict[Node, list[tuple[Node, Sequence[float]]]] = {}
    for (begin, end), step in edges.items():
        into.setdefault(end, []).append((begin, step))
    nodes = sorted({node for pair in edges for node in pair})
    least_s = _least_time(edges, nodes)
    cost = float(values[0, first])
    most = gap_j * (1 - 1e-9)
    # (time, energy, where each label came from: (node, label there)) by node
    labels: dict[Node, tuple[np.ndarray, np.ndarray, Any]] = {(0, first): (np.zeros(1), np.zeros(1), None)}
    for node in nodes:
        if node not in into:
            continue
        sources = [(begin, *labels[begin], spent) for begin, spent in into[node] if begin in labels]
        if not sources:
            continue
        time = np.concatenate([source[1] + source[4][0] for source in sources])
        energy = np.concatenate([source[2] + source[4][1] for source in sources])
        origin = np.concatenate([np.full(len(source[1]), number) for number, source in enumerate(sources)])
        place = np.concatenate([np.arange(len(source[1])) for source in sources])
        reduced = energy + price * time + values[node] - cost
        keep = np.flatnonzero((reduced <= most) & (time + least_s[node] <= limit_s))
        if not len(keep):
            continue
        keep = keep[pareto(time[keep], energy[keep], origin[keep])]
        if len(keep) > _LABELS:
            keep = _thinned(keep, time, reduced, _LABELS)
        back = [(sources[origin[at]][0], int(place[at])) for at in keep]
        labels[node] = (time[keep], energy[keep], back)
    end = (chain.count, first)
    if end not in labels:
        return None
    time, energy, _ = labels[end]
    best = np.lexsort((time, np.where(time <= limit_s, energy, np.inf)))[0]
    return _walked_back(labels, end, int(best), first) if time[best] <= limit_s else None


def _edges(chain: Chain, choices: Sequence[Changes]) -> Edges:
    """Return each step of each choice, from one boundary with nothing under way to the next."""
    edges: Edges = {}
    for changes in choices:
        sums, states = chain.until(changes), chain.states(changes)
        if sums is None:
            continue  # it cannot be played
        settled = np.flatnonzero(states >= 0)
        nodes = list(zip(settled.tolist(), states[settled].tolist()))
        steps = np.diff(sums[settled], axis=0).tolist()
        for begin, end, step in zip(nodes, nodes[1:], steps):
            edges.setdefault((begin, end), step)
    return edges


def _least_time(edges: Edges, nodes: list[Node]) -> dict[Node, float]:
    """Return {node: least time from it to the end within the union}."""
    out: dict[Node, list[tuple[Node, float]]] = {}
    for (begin, end), (time, _) in edges.items():
        out.setdefault(begin, []).append((end, time))
    least: dict[Node, float] = {}
    for node in reversed(nodes):
        least[node] = min((least[end] + time for end, time in out.get(node, ())), default=0.0)
    return least


def _thinned(keep: np.ndarray, time: np.ndarray, cost: np.ndarray, most: int) -> np.ndarray:
    """Return, of the labels `keep`, at most `most`: the cheapest of each stretch of time."""
    times = time[keep]
    span = times.max() - times.min()
    bucket = np.minimum(((times - times.min()) / (span or 1.0) * most).astype(int), most - 1)
    order = np.lexsort((cost[keep], bucket))
    return keep[np.sort(order[np.flatnonzero(np.diff(bucket[order], prepend=-1))])]


def _walked_back(labels: dict[Node, Any], node: Node, label: int, first: int) -> Changes:
    at: list[int] = []
    to: list[int] = []
    while labels[node][2] is not None:
        before, place = labels[node][2][label]
        if before[1] != node[1]:
            at.append(before[0])
            to.append(node[1])
        node, label = before, place
    return Changes(first, tuple(at[::-1]), tuple(to[::-1]))


def ways_to_the_end(chain: Chain, price: float, firsts: Sequence[int]) -> dict[int, Ways]:
    """Return {first pair: what `search` knows of what is left, for any number of labels}."""
    return dict(zip(firsts, zip(chain.values(price, firsts), chain.values_s(firsts))))


def search(
    chain: Chain, price: float, first: int, limit_s: float, known_j: float, labels: int, effort: int, ways: Ways
) -> tuple[Changes | None, bool, int]:
    """Return (Changes or None, whether the search was complete, effort spent): the choice of least energy within the
    limit of all that begin with the pair `first`, if it has less than `known_j`.

    price: of time, W. labels: how many are kept at a node. effort: how many steps from labels it may look at. ways: at
    this price, from this pair.
    """
    values, least_s = ways
    count = chain.count
    # nothing that ends at the limit with known_j costs less at the price
    most = known_j + price * limit_s
    sequence = chain.sequence
    begin = min(int(chain.begin[first]), count)
    begun = (sequence.until_s[begin, [first]], sequence.until_j[begin, [first]])
    waiting: dict[int, list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]] = {}
    waiting[begin] = [(np.array([first]), *begun, np.zeros(1, dtype=np.intp))]
    # where each change was made, to which pair, and the number of the change before it; 0 is none
    trail_at: list[np.ndarray] = []
    trail_to: list[np.ndarray] = []
    trail_from: list[np.ndarray] = []
    # the two programmes of the ways count too, also where they were made before
    size, complete, spent_effort = 0, True, 2 * count * chain.size
    best = None
    for place in range(count + 1):
        arrived = waiting.pop(place, None)
        if arrived is None:
            continue
        pair, time, energy, number = (np.concatenate(parts) for parts in zip(*arrived))
        pair, time, energy, number, cut = _undominated(pair, time, energy, number, price, labels)
        complete &= not cut
        if place == count:
            fits = np.flatnonzero((time <= limit_s) & (energy < known_j))
            best = number[fits[np.lexsort((time[fits], energy[fits]))[0]]] if len(fits) else None
            break
        spent = energy + price * time
        spent_effort += len(pair) * chain.size
        if spent_effort > effort:
            return None, False, spent_effort
        for after, source, to, step_s, step_j in chain.steps(place, pair):
            total_s, total_j = time[source] + step_s, energy[source] + step_j
            keep = np.flatnonzero(
                (spent[source] + step_j + price * step_s + values[after, to] < most)
                & (total_s + least_s[after, to] <= limit_s)
            )
            if not len(keep):
                continue
            source, to = source[keep], to[keep]
            numbers = number[source].copy()
            moved = np.flatnonzero(to != pair[source])
            if len(moved):
                numbers[moved] = np.arange(size + 1, size + 1 + len(moved))
                size += len(moved)
                trail_at.append(np.full(len(moved), place))
                trail_to.append(to[moved])
                trail_from.append(number[source[moved]])
            for goal in np.unique(after[keep]).tolist():
                there = np.flatnonzero(after[keep] == goal)
                waiting.setdefault(goal, []).append(
                    (to[there], total_s[keep[there]], total_j[keep[there]], numbers[there])
                )
    if best is None:
        return None, complete, spent_effort
    walked = []
    if best:  # 0: no change at all
        at, to, back = (np.concatenate(parts) for parts in (trail_at, trail_to, trail_from))
    while best:
        walked.append((int(at[best - 1]), int(to[best - 1])))
        best = back[best - 1]
    places, pairs = zip(*walked[::-1]) if walked else ((), ())
    return Changes(first, places, pairs), complete, spent_effort


def _undominated(
    pair: np.ndarray, time: np.ndarray, energy: np.ndarray, number: np.ndarray, price: float, labels: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool]:
    """Return (pair, time, energy, number of the labels that are kept, whether any was cut for their number alone)."""
    parts: list[np.ndarray] = []
    cut = False
    for value in np.unique(pair).tolist():
        places = np.flatnonzero(pair == value)
        if len(places) > 1:
            places = places[pareto(time[places], energy[places], number[places])]
        if len(places) > labels:
            cut = True
            places = _thinned(places, time, energy + price * time, labels)
        parts.append(places)
    keep = np.concatenate(parts)
    return pair[keep], time[keep], energy[keep], number[keep], cut
