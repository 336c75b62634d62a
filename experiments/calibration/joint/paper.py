"""What the paper's procedure would have shown on a board, drawn many times, and how well that is what the paper shows.

The procedure: each kernel and pass measured once at each pair of the grid, clocks chosen strictly from that, the choice
measured again. Noise as gpu.noise draws it; a pass has the offsets of its kernels. A fact is what one draw shows; a
clue is a number or a sign that the paper prints, with how far a draw may lie from it (arXiv 2601.08539; sections as in
kernel_dvfs_paper.claim).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from experiments.calibration.joint.truth import PASSES, Study, Truth, strict
from kernel_dvfs.report.words import PAPER_CLAIMED_PERCENT, PAPER_PAIRS, PAPER_PERCENT
from kernel_dvfs_clocks.clocks import AUTO
from kernel_dvfs_paper.chosen import (
    CLAIMED_ENERGY,
    KERNEL_ENERGY,
    KERNEL_TIME,
    LEAST_AGREEING,
    PAPER_AUTO,
    PASS_ENERGY,
    SIMILAR_SHARE,
    SMALL_DELAY_PERCENT,
    VISIBLE_PP,
    chance,
)
from kernel_dvfs_paper.claim import VISIBLE_PERCENT

DRAWS = 48  # of noise, at which a likelihood is taken: with fewer it is that of their luck
FULL_MEMORY_MHZ = 9000  # from here on the memory runs at its full bandwidth
Facts = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Scatter:
    """How points scatter: relative standard deviations."""

    below_s: np.ndarray  # upper ends of the rows of `time`, by a launch's time
    time: np.ndarray  # of a window
    power: np.ndarray  # of a window
    governed: float  # of a session, where the governor chooses the clock
    locked: float  # likewise, where a lock does


def scatter_of(noise: Mapping) -> Scatter:
    """Return a spec's noise as arrays."""
    rows = noise["window"]
    time, energy = (np.array([row[name] for row in rows]) for name in ("time_sd", "energy_sd"))
    below_s = np.array([row["below_s"] for row in rows[:-1]])
    power = np.sqrt(np.maximum(energy**2 - time**2, 0))
    return Scatter(below_s, time, power, noise["offset_sd"]["governed"], noise["offset_sd"]["locked"])


@cache
def _drawn(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal numbers, the same for each board: boards are told apart by what they do, not by luck."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def facts_of(study: Study, board: Truth, scatter: Scatter, cool_mhz: float, seed: int = 7, draws: int = DRAWS) -> Facts:
    """Return {name: (D,) or (D, K)} what draws of the procedure show on a board.

    cool_mhz: the highest clock that auto reaches on a cool board; a lock below it lowers the voltage.
    """
    count, pairs = study.kernels, len(study.pairs)
    is_auto = np.array([[each == AUTO for each in pair] for pair in study.pairs])  # (P, [core, mem])
    core, mem = (np.array([np.inf if pair[i] == AUTO else pair[i] for pair in study.pairs]) for i in (0, 1))
    lowers_core, lowers_mem = core < cool_mhz, mem < FULL_MEMORY_MHZ
    lowers = lowers_core | lowers_mem
    governed = is_auto[:, 0] | (board.core_mhz < np.where(np.isfinite(core), core, 0) - 0.01)  # (L, P)
    z = _drawn(seed, (4, draws, count + len(PASSES), pairs))

    # kernels: an offset of the session, and the scatter of the point's window
    offset = np.where(governed[:count], scatter.governed, scatter.locked)
    offset_t, offset_p = offset * z[0, :, :count], offset * z[1, :, :count]
    size = np.searchsorted(scatter.below_s, board.time_s, side="right")
    sd_t, sd_p = scatter.time[size], scatter.power[size]
    weight = study.launches[:, None]
    true_t, true_e = weight * board.time_s[:count], weight * board.energy_j[:count]
    time = true_t * np.exp(offset_t + sd_t[:count] * z[2, :, :count])
    energy = true_e * (time / true_t) * np.exp(offset_p + sd_p[:count] * z[3, :, :count])
    choice = strict(time, energy)
    auto_t, auto_e = time[:, :, 0].sum(1), energy[:, :, 0].sum(1)
    claimed_t, claimed_e = _percent(_taken(time, choice), auto_t), _percent(_taken(energy, choice), auto_e)
    again_t, again_e = (
        _percent(_taken(np.broadcast_to(true, time.shape), choice), true[:, 0].sum()) for true in (true_t, true_e)
    )
    local = np.where(time <= time[:, :, :1], energy, np.inf).min(2).sum(1)
    both = np.stack([lowers_core[choice], lowers_mem[choice]])
    either = both.any(0).sum(1)

    # passes: the mean offsets of their kernels, and the scatter of their own window
    changes, whole = [], []
    for number in range(len(PASSES)):
        row = count + number
        load = study.loads[row]
        place, launches = [kernel for kernel, _ in load], np.array([n for _, n in load])[:, None]
        share = launches * board.time_s[place]
        share = share / share.sum(0)
        # of the kernels, in the state of the pass
        sd = np.where(governed[row], scatter.governed, scatter.locked)
        mean_t, mean_p = (sd * (share * z[number, :, place].swapaxes(0, 1)).sum(1) for number in (0, 1))
        own_t = board.time_s[row] * np.exp(mean_t + sd_t[row] * z[2, :, row])
        own_e = own_t * board.power_w[row] * np.exp(mean_p + sd_p[row] * z[3, :, row])
        whole.append((own_t, own_e))
        changes.append((100 * (own_t / own_t[:, :1] - 1), 100 * (own_e / own_e[:, :1] - 1)))
    (front_t, front_e), (back_t, back_e) = changes
    together_t, together_e = (whole[0][i][:, :, None] + whole[1][i][:, None, :] for i in (0, 1))
    base_t, base_e = (each[:, 0, 0] for each in (together_t, together_e))
    kept = np.where(together_t <= base_t[:, None, None] * (1 + 1e-12), together_e, np.inf).reshape(draws, -1)
    best = kept.argmin(1)
    inside = (front_t <= 0) & (front_e < 0) & (np.arange(pairs) > 0)
    in_square = np.where(inside, front_e, np.nan)
    least = np.where(back_t <= 0, back_e, np.inf).argmin(1)
    saves = lowers & (back_t > 0) & (back_t <= SMALL_DELAY_PERCENT) & (back_e <= -VISIBLE_PERCENT)
    some = inside.any(1)
    return {
        "pass_energy": _percent(kept[np.arange(draws), best], base_e),
        "pass_time": _percent(together_t.reshape(draws, -1)[np.arange(draws), best], base_t),
        "square": inside.sum(1),
        "square_lowering": (inside & lowers).sum(1),
        "square_largest": np.where(some, np.nanmin(np.where(some[:, None], in_square, 0.0), 1), 0.0),
        "square_range": np.where(some, np.ptp(_filled(in_square), 1), 0.0),
        "forward_share": whole[0][1][:, 0] / base_e,
        "backward_fastest": np.where(lowers, back_t, np.inf).min(1),
        "backward_kept": ~lowers[least],
        "backward_small": saves.sum(1),
        "claimed_time": claimed_t,
        "claimed_energy": claimed_e,
        "again_time": again_t,
        "again_energy": again_e,
        "local_energy": _percent(local, auto_e),
        "fastest_time": _percent(time.min(2).sum(1), auto_t),
        "one_share": (both.sum(0) == 1).sum(1) / np.maximum(either, 1),
        "free": 2 - both.sum(0),  # clocks that are not lowered: as auto's, by whatever name Table 1 prints them
        "rows": np.broadcast_to(study.rows, choice.shape),
    }


def _percent(values: np.ndarray, of: np.ndarray | float) -> np.ndarray:
    return 100 * (values / of - 1)


def _taken(values: np.ndarray, choice: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, choice[..., None], -1)[..., 0].sum(1)


def _filled(values: np.ndarray) -> np.ndarray:
    """Return values with NaN replaced by the least of its row, which changes no range."""
    least = np.nanmin(np.where(np.isnan(values).all(1)[:, None], 0.0, values), axis=1)
    return np.where(np.isnan(values), least[:, None], values)


# --- clues: what the paper prints, as log likelihoods of a draw -------------------------------------------------------


def _near(values: np.ndarray, value: float, sd: float) -> np.ndarray:
    return -0.5 * ((values - value) / sd) ** 2


def _is(holds: np.ndarray, sure: float = 0.95) -> np.ndarray:
    return np.where(holds, math.log(sure), math.log(1 - sure))


SIMILAR_POINTS = SIMILAR_SHARE * -PAPER_PERCENT["pass"]  # gains of passes are similar within this, of the iteration
ALIKE = 3  # of Table 1's rows about so many are one kernel at another place: their marks are no evidence of their own
CLUES: dict[str, Callable[[Facts], np.ndarray]] = {
    "1": lambda f: _near(f["pass_energy"], PAPER_PERCENT["pass"], 0.5),
    "2": lambda f: (
        _near(f["square"], PAPER_PAIRS["forward"], 1.2)
        + _is(f["square_range"] <= SIMILAR_POINTS / f["forward_share"], 0.85)
        + _is(f["square_largest"] >= PASS_ENERGY[">="] / f["forward_share"], 0.85)
        + _is(f["square_lowering"] >= 1, 0.8)
    ),
    "3": lambda f: _is(f["backward_fastest"] > 0) + _is(f["backward_kept"]),
    "4": lambda f: _is(f["backward_small"] >= 1, 0.9),
    "8, energy": lambda f: _near(f["again_energy"], PAPER_PERCENT["kernel"], 0.7),
    "8, time": lambda f: _near(f["again_time"], 0.6, 0.3),
    "9": lambda f: _near(f["claimed_energy"], PAPER_CLAIMED_PERCENT, 0.7),
    "11": lambda f: _is(f["one_share"] >= 0.8, 0.9),
    "13": lambda f: _is(f["local_energy"] - f["claimed_energy"] >= VISIBLE_PP),
    "16": lambda f: _is(f["fastest_time"] >= -3),
    "19": lambda f: _is(f["claimed_energy"] <= np.minimum(2 * f["pass_energy"], f["pass_energy"] - VISIBLE_PP)),
    "20": lambda f: _is(f["again_time"] > f["claimed_time"], 0.9) + _is(f["again_energy"] > f["claimed_energy"], 0.9),
}
MARKS = "30"


def paper_marks(rows: np.ndarray) -> np.ndarray:
    """Return how many clocks Table 1 leaves at auto in its rows."""
    return np.array([next((n for n, own in PAPER_AUTO.items() if row in own), 1) for row in rows.tolist()])


def clue_values(facts: Facts) -> dict[str, np.ndarray]:
    """Return {clue: (D,) log likelihood of each draw}; of the marks, which are judged over all draws, (1,).

    A row's clocks may print the paper's marks where no more are printed as auto than are not lowered (claim 30).
    """
    found = {name: clue(facts) for name, clue in CLUES.items()}
    seen = (facts["free"] >= paper_marks(facts["rows"][0])).sum(0)  # of the draws, by kernel
    return found | {MARKS: np.array([np.log((seen + 0.5) / (len(facts["free"]) + 1)).sum() / ALIKE])}


def log_likelihood(values: Mapping[str, np.ndarray], left_out: frozenset[str] = frozenset()) -> float:
    """Return the log of the mean likelihood over the draws, without the clues left out."""
    of_draws = sum(own for name, own in values.items() if name != MARKS and name not in left_out)
    total = np.asarray(of_draws)
    highest = float(total.max())
    marks = 0.0 if MARKS in left_out else float(values[MARKS][0])
    return highest + math.log(np.exp(total - highest).mean()) + marks


# --- verdicts, by the rules of kernel_dvfs_paper.claim --------------------------------------------------------------


def verdicts(f: Facts) -> dict[str, np.ndarray]:
    """Return {claim: (D,) whether it holds in a draw}, by the judges' rules, of those that a draw decides."""
    share, papers = f["forward_share"], PAPER_PAIRS["forward"]
    may_be = paper_marks(f["rows"][0]) <= f["free"][..., None]  # (D, K ours, K of the paper)
    agree = may_be.diagonal(axis1=1, axis2=2).sum(1)
    by_chance = np.array([chance(own) for own in may_be])
    return {
        "1": _within(f["pass_energy"], PASS_ENERGY) & (f["pass_time"] <= 1e-9),
        "2": (np.abs(f["square"] - papers) <= 2)
        & (f["square_largest"] >= PASS_ENERGY[">="] / share)
        & (f["square_range"] <= SIMILAR_POINTS / share),
        "3": (f["backward_fastest"] > 0) & f["backward_kept"],
        "4": f["backward_small"] >= 1,
        "8": _within(f["again_energy"], KERNEL_ENERGY) & (f["again_time"] <= KERNEL_TIME["<="]),
        "9": _within(f["claimed_energy"], CLAIMED_ENERGY),
        "11": f["one_share"] >= 0.8,
        "13": f["local_energy"] - f["claimed_energy"] >= VISIBLE_PP,
        "16": f["fastest_time"] >= -3,
        "19": f["claimed_energy"] <= np.minimum(2 * f["pass_energy"], f["pass_energy"] - VISIBLE_PP),
        "20": (f["again_time"] > f["claimed_time"]) & (f["again_energy"] > f["claimed_energy"]),
        "30": (agree >= LEAST_AGREEING * len(f["rows"][0])) & (agree > by_chance),
    }


def _within(values: np.ndarray, rule: Mapping[str, float]) -> np.ndarray:
    return (values >= rule[">="]) & (values <= rule["<="])
