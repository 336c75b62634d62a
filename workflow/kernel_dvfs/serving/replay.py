"""A list of requests through one instance: what a serving profile is made of."""

from collections import namedtuple

import numpy as np

from kernel_dvfs.serving.instance import Instance, Silent
from kernel_dvfs.serving.request import Request

Replay = namedtuple("Replay", "ttft_s finished gap_s gap_count energy_j busy_s end_s")
Replay.__doc__ = """ttft_s (n,): NaN where no token came. finished (n,): bool. gap_s, gap_count (m,): lengths of gaps
between tokens, and how many there were of each. energy_j, busy_s: of the instance until end_s, idleness included in
the energy."""


class _Gaps(Silent):
    def __init__(self):
        self.seconds, self.counts = [], []
        self.energy_j = self.busy_s = 0.0

    def busy(self, start_s, end_s, energy_j):
        self.energy_j += energy_j
        self.busy_s += end_s - start_s

    def idle(self, start_s, end_s, energy_j):
        self.energy_j += energy_j

    def gap(self, seconds, count):
        self.seconds.append(seconds)
        self.counts.append(count)


def simulate_instance(
    engine, kv_tokens, arrival_s, input_tokens, output_tokens, *, max_batch=256, chunk_tokens=512, horizon_s=None
) -> Replay:
    """Serve requests (arrays of shape (n,), arrivals ascending) until all are done, or until horizon_s."""
    gaps = _Gaps()
    instance = Instance(engine, kv_tokens, 0.0, max_batch, chunk_tokens, gaps)
    requests = [
        Request(number, *each)
        for number, each in enumerate(
            zip(np.asarray(arrival_s).tolist(), np.asarray(input_tokens).tolist(), np.asarray(output_tokens).tolist())
        )
    ]
    coming, now_s = iter(requests), 0.0
    following = next(coming, None)
    while following is not None or instance.next_s is not None:
        arrives = following is not None and (instance.next_s is None or following.arrival_s <= instance.next_s)
        then_s = following.arrival_s if arrives else instance.next_s
        if horizon_s is not None and then_s > horizon_s:
            break
        now_s = then_s
        if arrives:
            instance.submit(following, now_s)
            following = next(coming, None)
        else:
            instance.event(now_s)
    if horizon_s is not None:
        now_s = max(now_s, horizon_s)
    instance.close(now_s)
    return Replay(
        np.array([np.nan if each.first_s is None else each.first_s - each.arrival_s for each in requests]),
        np.array([each.finish_s is not None for each in requests], dtype=bool),
        np.array(gaps.seconds),
        np.array(gaps.counts, dtype=np.int64),
        gaps.energy_j,
        gaps.busy_s,
        now_s,
    )


def weighted_quantile(values, counts, share: float) -> float:
    """The smallest value that at least `share` of all counts do not exceed; NaN of nothing."""
    values, counts = np.asarray(values), np.asarray(counts)
    if not values.size:
        return float("nan")
    order = np.argsort(values)
    reached = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(reached, share * reached[-1])])
