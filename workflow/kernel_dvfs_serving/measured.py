"""Engine steps worked out of a measured profile: what its instances took and drew, not what a simulated GPU would.

A profile says how long tokens took and what was drawn at some loads; a replay needs the time and energy of single steps
with any batch. For each degree and clock two sums are fitted to all of that setting's rows, no term negative:

    s = t0 + t1 n + t2 max(0, n - RIDGE_TOKENS) + t3 context + t4 pairs
    J = w s + e0 + e1 min(n, RIDGE_TOKENS) + e2 max(0, n - RIDGE_TOKENS) + e3 context

of a step with n new tokens; between steps, idle W.

The first from the time between tokens (an instance at a load decodes, by Little's law, as many sequences as arrive in
the time that an answer takes, and a request finds those of the others beside it: PASTA) and from the time to the first
token at the least load, where nothing waits. The second from power: the instance is simulated at profiled loads with
steps of the fitted times, which says how often each term occurs in a second. Doubling the profile's power doubles every
energy, doubling its latencies doubles every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.instance import Engine, Linear
from kernel_dvfs_serving.make_profile import PoissonArrivals, measure
from kernel_dvfs_serving.profile import LoadCurve, ServingProfile
from kernel_dvfs_serving.requests import CLASSES

Lengths = dict[str, tuple[float, float]]
Row = tuple[np.ndarray, float]  # how often each term occurs, and what was measured

# new tokens of a step from which linear layers are bound by arithmetic: about an H100's 990 TFLOP/s over 3.35 TB/s
RIDGE_TOKENS = 256
# share of steps with prompt work up to which the median time between tokens is that of a plain decode step
PLAIN_SHARE = 0.5
# loads of a curve, and requests of each, that the instance is simulated with
LOADS, REQUESTS = 5, 150
# relative error of the fitted median times or powers above which a profile is no description of one instance
WORST_MEDIAN_ERROR = 0.25


@dataclass(frozen=True, slots=True)
class Fit:
    """How well the steps of a degree and clock give back its profile: median relative errors."""

    tbt: float
    ttft: float
    power: float


class MeasuredEngine(Engine):
    """Steps of one degree and clock. time: (5,) t0 to t4; energy: (5,) w, e0 to e3, all as above."""

    def __init__(self, time: np.ndarray, energy: np.ndarray, idle_w: float, fit: Fit):
        self._time, self._energy = time.tolist(), energy.tolist()
        self.idle_w, self.fit = idle_w, fit

    @property
    def least_w(self) -> float:
        """See Engine. Nothing in the fit keeps a step from drawing less than no step does."""
        t0, t1, t2, t3, t4 = self._time
        w, e0, e1, e2, e3 = self._energy
        parts = (t0, e0), (t1, e1), (t1 + t2, e2), (t3, e3), (t4, 0.0)
        return min(self.idle_w, w + min(energy_j / time_s for time_s, energy_j in parts if time_s))

    def step(
        self, new_tokens: int, prompt_pairs: float, context_tokens: float, sequences: int = 0
    ) -> tuple[float, float]:
        """See Engine.step."""
        t0, t1, t2, t3, t4 = self._time
        w, e0, e1, e2, e3 = self._energy
        more = max(0, new_tokens - RIDGE_TOKENS)
        time_s = t0 + t1 * new_tokens + t2 * more + t3 * context_tokens + t4 * prompt_pairs
        return time_s, w * time_s + e0 + e1 * (new_tokens - more) + e2 * more + e3 * context_tokens

    def linear(self, batch: int, context_tokens: float = 0) -> Linear:
        """See Engine.linear; the line is the same at every context."""
        per_token_s = self._time[3]
        time_s, energy_j = self.step(batch, 0, 0)
        return Linear(time_s, per_token_s, energy_j, self._energy[0] * per_token_s + self._energy[4])


class _Terms(Engine):
    """Steps of fitted times whose "energy" is how often each term of the energy occurs: (6,) idle s, then w to e3's."""

    idle_w: Any = np.array([1.0, 0, 0, 0, 0, 0])

    def __init__(self, time: np.ndarray):
        self._times = MeasuredEngine(time, np.zeros(5), 0.0, Fit(0, 0, 0))

    def step(
        self, new_tokens: int, prompt_pairs: float, context_tokens: float, sequences: int = 0
    ) -> tuple[float, Any]:
        """See Engine.step."""
        time_s, _ = self._times.step(new_tokens, prompt_pairs, context_tokens)
        more = max(0, new_tokens - RIDGE_TOKENS)
        return time_s, np.array([0, time_s, 1, new_tokens - more, more, context_tokens])

    def linear(self, batch: int, context_tokens: float = 0) -> Linear:
        """See Engine.linear."""
        line = self._times.linear(batch)
        per_token: Any = np.array([0, line.time_per_token_s, 0, 0, 0, 1.0])
        return Linear(line.time_s, line.time_per_token_s, self.step(batch, 0, 0)[1], per_token)


def engine(profile: ServingProfile, tp: int, clock: str, kv_tokens: int, **limits: int) -> MeasuredEngine:
    """Return the engine of a degree and clock of the profile. limits: max_batch, chunk_tokens, as make_profile.measure.

    Raises InputError where it has no such rows, or where they describe no engine: no time between tokens, or a fit
    that misses them by more than WORST_MEDIAN_ERROR.
    """
    where = f"{profile.name}: tp {tp}, {clock} MHz"
    curves = {name: profile.curves[name, tp, clock] for name in CLASSES if (name, tp, clock) in profile.curves}
    if not curves:
        raise InputError(f"{profile.name}: no rows for tp {tp}, core clock {clock}; profile it, or leave it out")
    lengths = {name: profile.tokens(name) for name in curves}
    time, tbt, ttft = _times(curves, lengths, **limits)
    if time[:2].sum() <= 0:
        raise InputError(f"{where}: its times between tokens fit no engine; measure more loads, or leave it out")
    idle_w = profile.idle_w(tp, clock)
    energy, power = _energies(curves, lengths, _Terms(time), kv_tokens, idle_w, **limits)
    fit = Fit(tbt, ttft, power)
    for name in ("tbt", "power"):
        error = getattr(fit, name)
        if error > WORST_MEDIAN_ERROR:
            raise InputError(
                f"{where}: {name} of its rows is {100 * error:.0f} % (median) off what any one engine would show; look "
                "for rows of another setting among them"
            )
    return MeasuredEngine(time, energy, idle_w, fit)


def _times(
    curves: dict[str, LoadCurve], lengths: Lengths, max_batch: int, chunk_tokens: int
) -> tuple[np.ndarray, float, float]:
    """Return ((5,) t0 to t4, median relative errors of time between tokens and of time to the first token)."""
    plain: list[Row] = []
    mixed: list[Row] = []
    first: list[Row] = []
    for name, curve in curves.items():
        prompt, answer = lengths[name]
        chunks = [(start, min(chunk_tokens, prompt - start)) for start in range(0, ceil(prompt), chunk_tokens)]
        read = np.sum([_terms(tokens, start=start) for start, tokens in chunks], axis=0)
        first.append((read, float(curve.ttft_p50_s[0])))
        for tps, tbt_s in zip(curve.tps.tolist(), curve.tbt_p50_s.tolist()):
            rate = tps / (prompt + answer)
            batch = min(max_batch, 1 + rate * answer * tbt_s)
            row = _terms(batch, context=batch * (prompt + answer / 2)), tbt_s
            (plain if rate * len(chunks) * tbt_s <= PLAIN_SHARE else mixed).append(row)
    # where most steps read prompts the median is of those, whose size is not known; better than nothing alone
    decoded = plain or mixed
    rows = [*decoded, *first]
    # relative errors count; both kinds together weigh the same
    weights = np.array([1 / s for _, s in rows])
    weights[len(decoded) :] *= (len(decoded) / len(first)) ** 0.5
    terms = np.array([row for row, _ in rows]) * weights[:, None]
    factors = _fitted(terms, np.array([s for _, s in rows]) * weights)
    return factors, _error(factors, decoded), _error(factors, first)


def _terms(tokens: float, start: float = 0, context: float = 0) -> np.ndarray:
    """Return (5,) what t0 to t4 are multiplied by. start: of a prompt's chunk. context: that decoding attends over."""
    pairs = 0.0 if context else tokens * start + tokens * (tokens + 1) / 2
    return np.array([1.0, tokens, max(0.0, tokens - RIDGE_TOKENS), context, pairs])


def _energies(
    curves: dict[str, LoadCurve], lengths: Lengths, terms: _Terms, kv_tokens: int, idle_w: float, **limits: int
) -> tuple[np.ndarray, float]:
    """Return ((5,) w and e0 to e3, median relative error of power). idle_w is measured, so it is not fitted."""
    rows: list[Row] = []
    for name, curve in curves.items():
        load = _load(name, lengths[name])
        # a few loads of a curve say as much as all
        for place in np.unique(np.linspace(0, len(curve.tps) - 1, LOADS).round().astype(int)).tolist():
            tps, drawn_w = float(curve.tps[place]), float(curve.power_w[place])
            if tps:
                rows.append((np.asarray(measure(terms, kv_tokens, load, tps, **limits).power_w), drawn_w))
    occurs = np.array([row for row, _ in rows])
    power_w = np.array([watt for _, watt in rows])
    wanted = np.maximum(0.0, power_w - idle_w * occurs[:, 0])
    factors = _fitted(occurs[:, 1:] / power_w[:, None], wanted / power_w)
    return factors, _error(np.array([idle_w, *factors]), rows)


def _fitted(terms: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the factors, none negative, that come nearest to `wanted`. Columns, which differ widely, are scaled."""
    from scipy.optimize import nnls  # a third of what importing this package takes, and most need no fit

    scale = np.where(terms.max(axis=0) > 0, terms.max(axis=0), 1.0)
    factors: np.ndarray = nnls(terms / scale, wanted)[0] / scale
    return factors


def _load(name: str, lengths: tuple[float, float]) -> PoissonArrivals:
    """Return Poisson arrivals of a class, lengths scaled to the profile's means."""
    drawn = PoissonArrivals.draw(name, REQUESTS)
    prompt, answer = (
        np.maximum(1, (tokens * mean / tokens.mean()).round().astype(int))
        for tokens, mean in zip((drawn.input, drawn.output), lengths)
    )
    return PoissonArrivals(prompt, answer, drawn.gap, float((prompt + answer).mean()))


def _error(factors: np.ndarray, rows: Sequence[Row]) -> float:
    return float(np.median([abs(row @ factors / value - 1) for row, value in rows]))
