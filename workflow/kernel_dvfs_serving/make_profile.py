"""The simulated serving profile: one instance under Poisson load of a class, at every degree, clock and load asked for.

Loads of a class see the same arrivals and lengths at every degree and clock, so differences between those are not
luck. A curve climbs a ladder of loads until a promise breaks clearly, then the load where it breaks is narrowed down.
Power and latencies are those of a window after a warm-up. Every number is simulated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.instance import Instance, InstanceObserver
from kernel_dvfs_serving.profile import LoadPoint
from kernel_dvfs_serving.requests import TBT_SLO_S, Request, Seen, draw_lengths, index, ttft_slo_s
from kernel_dvfs_serving.scheduler import Limits
from kernel_dvfs_serving.steps import StepModel
from kernel_dvfs_serving.system import CHUNK_TOKENS, HOST_S, MAX_BATCH, REQUESTS

if TYPE_CHECKING:
    from kernel_dvfs_serving.instance import Engine

# tokens/s of an instance, input and output; the next is asked for while the last kept its promises
LADDER_TPS = (100, 200, 400, 650, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000, 16000, 24000, 32000, 48000)
# loads between the last that keeps every promise and the first that does not, by halving
HALVINGS = 3
WARM_UP = 0.15  # of the arrivals
SOURCE = "simulated"


@dataclass(frozen=True, slots=True)
class LoadPointWithMeans(LoadPoint):
    """An instance at one load, with the means of both latencies."""

    tbt_mean_s: float
    ttft_mean_s: float


@dataclass(frozen=True, slots=True, eq=False)
class PoissonArrivals:
    """Poisson arrivals of one class: the same draw, stretched, at every load. Arrays are of shape (n,)."""

    input: np.ndarray  # tokens of each prompt
    output: np.ndarray  # tokens of each answer
    gap: np.ndarray  # between arrivals at one request a second, s
    tokens: float  # of a request, prompt and answer, mean

    @classmethod
    def draw(cls, class_: str, requests: int = REQUESTS, seed: int = 1, seen: Seen | None = None) -> PoissonArrivals:
        """Return so many requests of a class; seed and class decide arrivals and lengths. seen: see draw_lengths."""
        rng = np.random.default_rng([seed, index(class_)])
        inputs, outputs = draw_lengths(class_, requests, rng, seen)
        return cls(inputs, outputs, rng.exponential(size=requests), float((inputs + outputs).mean()))

    def arrivals(self, tps: float) -> np.ndarray:
        """Return (n,) moments, s, at `tps` tokens/s."""
        return np.cumsum(self.gap) * self.tokens / tps


def measure(engine: Engine, kv_tokens: int, load: PoissonArrivals, tps: float, **limits: int) -> LoadPointWithMeans:
    """Return how the instance does at `tps` > 0. limits: max_batch, chunk_tokens, as simulate_instance."""
    arrival_s = load.arrivals(tps)
    warm_s, end_s = arrival_s[int(WARM_UP * len(arrival_s))], arrival_s[-1]

    def until(horizon_s: float) -> InstanceRun:
        return simulate_instance(engine, kv_tokens, arrival_s, load.input, load.output, horizon_s=horizon_s, **limits)

    whole, warm = until(end_s), until(warm_s)
    # who has no token when the window ends has waited at least until then
    ttft_s = np.where(np.isnan(whole.ttft_s), end_s - arrival_s, whole.ttft_s)[arrival_s >= warm_s]
    ttft_s = ttft_s[ttft_s > 0]
    gaps = whole.gap_s, whole.gap_count
    return LoadPointWithMeans(
        power_w=(whole.energy_j - warm.energy_j) / (end_s - warm_s),
        ttft_p50_s=float(np.quantile(ttft_s, 0.5)),
        ttft_p99_s=float(np.quantile(ttft_s, 0.99)),
        tbt_p50_s=weighted_quantile(*gaps, 0.5),
        tbt_p99_s=weighted_quantile(*gaps, 0.99),
        tbt_mean_s=_mean(*gaps),
        ttft_mean_s=float(ttft_s.mean()),
    )


def isolated(engine: Engine, kv_tokens: int, load: PoissonArrivals, **limits: int) -> LoadPointWithMeans:
    """Return the limit of no load: idle power, and the latencies of one request of mean length alone."""
    tokens = [round(float(lengths.mean())) for lengths in (load.input, load.output)]
    alone = simulate_instance(engine, kv_tokens, np.zeros(1), np.array(tokens[:1]), np.array(tokens[1:]), **limits)
    gaps = alone.gap_s, alone.gap_count
    p50_s, p99_s = (weighted_quantile(*gaps, share) for share in (0.5, 0.99))
    ttft_s = float(alone.ttft_s[0])
    return LoadPointWithMeans(engine.idle_w, ttft_s, ttft_s, p50_s, p99_s, _mean(*gaps), ttft_s)


def _mean(values: np.ndarray, counts: np.ndarray) -> float:
    return float(np.average(values, weights=counts)) if len(values) else float("nan")


def excess(class_: str, point: LoadPoint) -> float:
    """Return the worse of both P99 latencies over its promise; above 1 a promise is broken."""
    return max(point.ttft_p99_s / ttft_slo_s(class_), point.tbt_p99_s / TBT_SLO_S)


def curve(
    engine: Engine, kv_tokens: int, class_: str, load: PoissonArrivals, **limits: int
) -> dict[float, LoadPointWithMeans]:
    """Return {tokens/s: a point}, ascending: no load, the ladder up to the first broken promise, and loads between."""
    points = {0.0: isolated(engine, kv_tokens, load, **limits)}
    kept_tps: float = 0.0
    broken_tps: float | None = None
    for tps in LADDER_TPS:
        points[float(tps)] = point = measure(engine, kv_tokens, load, tps, **limits)
        if excess(class_, point) > 1:
            broken_tps = float(tps)
            break
        kept_tps = float(tps)
    if broken_tps and excess(class_, points[0.0]) <= 1:
        for _ in range(HALVINGS):
            middle_tps = round((kept_tps + broken_tps) / 2, 1)
            points[middle_tps] = point = measure(engine, kv_tokens, load, middle_tps, **limits)
            kept_tps, broken_tps = (kept_tps, middle_tps) if excess(class_, point) > 1 else (middle_tps, broken_tps)
    return dict(sorted(points.items()))


def profile_rows(
    gpu: str,
    model: str,
    degrees: Sequence[int],
    core_mhz: Sequence[int],
    classes: Sequence[str],
    *,
    requests: int = REQUESTS,
    seed: int = 1,
    overrides: dict | None = None,
    host_s: float = HOST_S,
    seen: Seen | None = None,
    **limits: int,
) -> list[dict]:
    """Return rows (dicts by profile.COLUMNS) for every class, degree and clock.

    overrides, host_s: as steps.StepModel. seen: lengths to draw from, see draw_lengths. limits: as measure. A class
    that a degree's KV cache cannot hold has no rows there. Raises InputError where nothing is left, for an unknown
    name, or for a degree that the model does not fit on.
    """
    loads = {class_: PoissonArrivals.draw(class_, requests, seed, seen) for class_ in classes}
    rows: list[dict] = []
    names = [field.name for field in fields(LoadPoint)]
    for tp in degrees:
        steps = StepModel(gpu, model, tp, overrides, host_s)
        for class_ in classes:
            longest = int((loads[class_].input + loads[class_].output).max())
            if longest > steps.kv_tokens:
                continue
            for mhz in core_mhz:
                points = curve(steps.at(mhz), steps.kv_tokens, class_, loads[class_], **limits)
                head = {"model": model, "gpu": gpu, "tp": tp, "core_mhz": mhz, "class": class_}
                rows += [
                    head | {"tps": tps, "source": SOURCE} | {name: getattr(point, name) for name in names}
                    for tps, point in points.items()
                ]
    if not rows:
        raise InputError(f"serving: {model} on {gpu}: no class fits into the KV cache at tp {degrees}; use a higher tp")
    return rows


# -- a list of requests through one instance ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class InstanceRun:
    """n requests through one instance."""

    ttft_s: np.ndarray  # (n,) NaN where no token came
    finish_s: np.ndarray  # (n,) moments, NaN where the answer is not whole
    gap_s: np.ndarray  # (m,) lengths of gaps between tokens
    gap_count: np.ndarray  # (m,) how many there were of each
    energy_j: float  # of the instance until end_s, idleness included
    busy_s: float
    end_s: float

    @property
    def finished(self) -> np.ndarray:
        """(n,) bool: whether the answer is whole."""
        return np.isfinite(self.finish_s)


class _Gaps(InstanceObserver):
    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.counts: list[int] = []
        self.energy_j = self.busy_s = 0.0

    def busy(self, start_s: float, end_s: float, energy_j: float) -> None:
        self.energy_j += energy_j
        self.busy_s += end_s - start_s

    def idle(self, start_s: float, end_s: float, energy_j: float) -> None:
        self.energy_j += energy_j

    def gap(self, seconds: float, count: int) -> None:
        self.seconds.append(seconds)
        self.counts.append(count)


def simulate_instance(
    engine: Engine,
    kv_tokens: int,
    arrival_s: np.ndarray,
    input_tokens: np.ndarray,
    output_tokens: np.ndarray,
    *,
    max_batch: int = MAX_BATCH,
    chunk_tokens: int = CHUNK_TOKENS,
    horizon_s: float | None = None,
) -> InstanceRun:
    """Return a run of requests (arrays of shape (n,), arrivals ascending) until all are done, or until horizon_s."""
    gaps = _Gaps()
    instance = Instance(engine, kv_tokens, Limits(chunk_tokens, max_batch), recorder=gaps)
    rows = zip(*(np.asarray(array).tolist() for array in (arrival_s, input_tokens, output_tokens)))
    requests = [Request(number, *row) for number, row in enumerate(rows)]
    coming, now_s = deque(requests), 0.0
    while coming or instance.next_s is not None:
        ends_s = inf if instance.next_s is None else instance.next_s
        arrives = bool(coming) and coming[0].arrival_s <= ends_s
        then_s = coming[0].arrival_s if arrives else ends_s
        if horizon_s is not None and then_s > horizon_s:
            break
        now_s = then_s
        if arrives:
            instance.submit(coming.popleft(), now_s)
        else:
            instance.event(now_s)
    if horizon_s is not None:
        now_s = max(now_s, horizon_s)
    instance.close(now_s)
    return InstanceRun(
        np.array([np.nan if request.first_s is None else request.first_s - request.arrival_s for request in requests]),
        np.array([np.nan if request.finish_s is None else request.finish_s for request in requests]),
        np.array(gaps.seconds),
        np.array(gaps.counts, dtype=np.int64),
        gaps.energy_j,
        gaps.busy_s,
        now_s,
    )


def weighted_quantile(values: np.ndarray, counts: np.ndarray, share: float) -> float:
    """Return the smallest value that at least `share` of all counts do not exceed; NaN of nothing."""
    values, counts = np.asarray(values), np.asarray(counts)
    if not values.size:
        return float("nan")
    order = np.argsort(values)
    reached = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(reached, share * reached[-1])])
