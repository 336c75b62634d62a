"""The best mixture of several choices: wherever two are at the same pair with nothing under way, one may go on as the
other. An exact search over the union of their paths, pruned by what the dynamic programme says of the rest.

A label is a way to a node (boundary, pair) with its time and energy. One that another one matches in both is
dropped; so is one whose best continuation at the price of time cannot beat the best known choice, or ends too late.
Where many are left, those of like time are thinned out to the cheapest; that costs no proof, since the bound is the
programme's.
"""

from __future__ import annotations

import numpy as np

from kernel_dvfs.choice.dominance import pareto
from kernel_dvfs.sequence.changes import Changes

_LABELS = 400  # a node


def best_mixture(chain, choices: list, price: float, values: np.ndarray, limit_s: float, gap_j: float):
    """The mixture of least energy within the limit, as Changes; None where none beats the gap.

    choices: Changes with one first pair. values: (N + 1, P) least cost at `price` from each state to the end in that
    pair. gap_j: energy of the best known choice above the bound.
    """
    first = choices[0].first
    edges = _edges(chain, choices)
    into: dict = {}
    for (begin, end), cost in edges.items():
        into.setdefault(end, []).append((begin, cost))
    nodes = sorted({node for pair in edges for node in pair})
    least_s = _least_time(edges, nodes)
    cost = float(values[0, first])
    most = gap_j * (1 - 1e-9)
    labels = {(0, first): (np.zeros(1), np.zeros(1), None)}
    for node in nodes:
        if node not in into:
            continue
        sources = [(begin, *labels[begin], spent) for begin, spent in into[node] if begin in labels]
        if not sources:
            continue
        time = np.concatenate([own[1] + own[4][0] for own in sources])
        energy = np.concatenate([own[2] + own[4][1] for own in sources])
        origin = np.concatenate([np.full(len(own[1]), number) for number, own in enumerate(sources)])
        place = np.concatenate([np.arange(len(own[1])) for own in sources])
        reduced = energy + price * time + values[node] - cost
        keep = np.flatnonzero((reduced <= most) & (time + least_s[node] <= limit_s))
        if not len(keep):
            continue
        keep = keep[pareto(time[keep], energy[keep], origin[keep])]
        if len(keep) > _LABELS:
            keep = thinned(keep, time, reduced, _LABELS)
        back = [(sources[origin[at]][0], int(place[at])) for at in keep]
        labels[node] = (time[keep], energy[keep], back)
    end = (chain.count, first)
    if end not in labels:
        return None
    time, energy, _ = labels[end]
    best = np.lexsort((time, np.where(time <= limit_s, energy, np.inf)))[0]
    return _walked_back(labels, end, int(best), first) if time[best] <= limit_s else None


def _edges(chain, choices: list) -> dict:
    """{(node, node): (time s, energy J)}: each step of each choice, from one settled boundary to the next."""
    found = {}
    for changes in choices:
        sums, states = chain.until(changes), chain.states(changes)
        settled = np.flatnonzero(states >= 0)
        nodes = list(zip(settled.tolist(), states[settled].tolist()))
        steps = np.diff(sums[settled], axis=0).tolist()
        for begin, end, step in zip(nodes, nodes[1:], steps):
            found.setdefault((begin, end), step)
    return found


def _least_time(edges: dict, nodes: list) -> dict:
    """{node: least time from it to the end within the union}."""
    out: dict = {}
    for (begin, end), (time, _) in edges.items():
        out.setdefault(begin, []).append((end, time))
    least = {}
    for node in reversed(nodes):
        least[node] = min((least[end] + time for end, time in out.get(node, ())), default=0.0)
    return least


def thinned(keep: np.ndarray, time: np.ndarray, cost: np.ndarray, most: int) -> np.ndarray:
    """Of the labels `keep` at most so many: the cheapest of each stretch of time."""
    own = time[keep]
    span = own.max() - own.min()
    bucket = np.minimum(((own - own.min()) / (span or 1.0) * most).astype(int), most - 1)
    order = np.lexsort((cost[keep], bucket))
    return keep[np.sort(order[np.flatnonzero(np.diff(bucket[order], prepend=-1))])]


def _walked_back(labels: dict, node: tuple, label: int, first: int) -> Changes:
    at, to = [], []
    while labels[node][2] is not None:
        before, place = labels[node][2][label]
        if before[1] != node[1]:
            at.append(before[0])
            to.append(node[1])
        node, label = before, place
    return Changes(first, tuple(at[::-1]), tuple(to[::-1]))
