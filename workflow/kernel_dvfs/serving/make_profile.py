"""The simulated serving profile: one instance under Poisson load of a class, at every degree, clock and load asked for.

Loads of a class see the same arrivals and lengths at every degree and clock, so differences between those are not
luck. A curve climbs a ladder of loads until a promise breaks clearly, then the load where it breaks is narrowed down.
Power and latencies are those of a window after a warm-up. Every number is simulated.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.serving.classes import index, tbt_slo_s, ttft_slo_s
from kernel_dvfs.serving.lengths import draw_lengths, mean_tokens
from kernel_dvfs.serving.profile import clock_name
from kernel_dvfs.serving.replay import simulate_instance, weighted_quantile
from kernel_dvfs.serving.steps import StepModel

# tokens/s of an instance, input and output; the next is asked for while the last kept its promises
LADDER_TPS = (100, 200, 400, 650, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000, 16000, 24000, 32000, 48000)
# loads between the last that keeps every promise and the first that does not, by halving
HALVINGS = 3
WARM_UP = 0.15  # of the arrivals
# shortest window worth reading a percentile from, and the longest worth waiting for: requests
REQUESTS = 800
SOURCE = "simulated"

Measured = namedtuple("Measured", "power_w ttft_p50_s ttft_p99_s tbt_p50_s tbt_p99_s tbt_mean_s ttft_mean_s")
Measured.__doc__ = "An instance at one load, as profile.Point, and the means of both latencies."


class Load:
    """Poisson arrivals of one class: the same draw, stretched, at every load.

    requests: how many. seed: of arrivals and lengths, with the class.
    """

    def __init__(self, class_: str, requests: int = REQUESTS, seed: int = 1):
        rng = np.random.default_rng([seed, index(class_)])
        self.input, self.output = draw_lengths(class_, requests, rng)
        self.gap = rng.exponential(size=requests)  # of a load of one request a second
        self.tokens = float((self.input + self.output).mean())

    def arrivals(self, tps: float) -> np.ndarray:
        """(n,) moments, s, at `tps` tokens/s."""
        return np.cumsum(self.gap) * self.tokens / tps


def measure(engine, kv_tokens: int, load: Load, tps: float, **limits) -> Measured:
    """The instance at `tps` > 0. limits: max_batch, chunk_tokens, as replay.simulate_instance."""
    arrival_s = load.arrivals(tps)
    warm_s, end_s = arrival_s[int(WARM_UP * len(arrival_s))], arrival_s[-1]

    def until(horizon_s):
        return simulate_instance(engine, kv_tokens, arrival_s, load.input, load.output, horizon_s=horizon_s, **limits)

    whole, warm = until(end_s), until(warm_s)
    # who has no token when the window ends has waited at least until then
    ttft_s = np.where(np.isnan(whole.ttft_s), end_s - arrival_s, whole.ttft_s)[arrival_s >= warm_s]
    ttft_s = ttft_s[ttft_s > 0]
    gaps = whole.gap_s, whole.gap_count
    return Measured(
        (whole.energy_j - warm.energy_j) / (end_s - warm_s),
        *(float(np.quantile(ttft_s, share)) for share in (0.5, 0.99)),
        *(weighted_quantile(*gaps, share) for share in (0.5, 0.99)),
        _mean(*gaps),
        float(ttft_s.mean()),
    )


def isolated(engine, kv_tokens: int, class_: str, **limits) -> Measured:
    """The limit of no load: idle power, and the latencies of one request of mean length alone."""
    tokens = [round(mean) for mean in mean_tokens(class_)]
    alone = simulate_instance(engine, kv_tokens, [0.0], tokens[:1], tokens[1:], **limits)
    tbt_s = [weighted_quantile(alone.gap_s, alone.gap_count, share) for share in (0.5, 0.99)]
    ttft_s = float(alone.ttft_s[0])
    return Measured(engine.idle_w, ttft_s, ttft_s, *tbt_s, _mean(alone.gap_s, alone.gap_count), ttft_s)


def _mean(values, counts) -> float:
    return float(np.average(values, weights=counts)) if len(values) else float("nan")


def excess(class_: str, point) -> float:
    """The worse of both P99 latencies over its promise; above 1 a promise is broken."""
    return max(point.ttft_p99_s / ttft_slo_s(class_), point.tbt_p99_s / tbt_slo_s(class_))


def curve(engine, kv_tokens: int, class_: str, load: Load, **limits) -> dict:
    """{tokens/s: Measured}, ascending: no load, the ladder up to the first broken promise, and loads between."""
    found = {0.0: isolated(engine, kv_tokens, class_, **limits)}
    kept, broken = 0.0, None
    for tps in LADDER_TPS:
        found[float(tps)] = point = measure(engine, kv_tokens, load, tps, **limits)
        if excess(class_, point) > 1:
            broken = float(tps)
            break
        kept = float(tps)
    if broken and excess(class_, found[0.0]) <= 1:
        for _ in range(HALVINGS):
            middle = round((kept + broken) / 2, 1)
            found[middle] = point = measure(engine, kv_tokens, load, middle, **limits)
            kept, broken = (kept, middle) if excess(class_, point) > 1 else (middle, broken)
    return dict(sorted(found.items()))


def profile_rows(
    gpu,
    model,
    degrees,
    core_mhz,
    classes,
    *,
    kernel_level=False,
    requests=REQUESTS,
    seed=1,
    overrides=None,
    **limits,
) -> list:
    """Rows (dicts by profile.COLUMNS) for every class, degree and clock; kernel_level: those of kernel level as well.

    overrides: of the GPU's spec. limits: as measure. A class that a degree's KV cache cannot hold has no rows there.
    Raises InputError where nothing is left, for an unknown name, or for a degree that the model does not fit on.
    """
    loads = {class_: Load(class_, requests, seed) for class_ in classes}
    rows = []
    for tp in degrees:
        steps = StepModel(gpu, model, tp, overrides)
        for class_ in classes:
            longest = int((loads[class_].input + loads[class_].output).max())
            if longest > steps.kv_tokens:
                continue
            for mhz in core_mhz:
                for level in (False, True) if kernel_level else (False,):
                    found = curve(steps.at(mhz, level), steps.kv_tokens, class_, loads[class_], **limits)
                    head = {"model": model, "gpu": gpu, "tp": tp, "core_mhz": clock_name(mhz, level), "class": class_}
                    rows += [
                        head | {"tps": tps, "source": SOURCE} | {name: getattr(point, name) for name in _POINT}
                        for tps, point in found.items()
                    ]
    if not rows:
        raise InputError(f"serving: {model} on {gpu}: no class fits into the KV cache at tp {degrees}; use a higher tp")
    return rows


_POINT = ("power_w", "ttft_p50_s", "ttft_p99_s", "tbt_p50_s", "tbt_p99_s")
