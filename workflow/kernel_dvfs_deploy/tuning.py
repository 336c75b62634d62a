"""Which clock pair a running training should keep: what to try next, what is shown, and what it saves. No hardware.

Unit of all comparisons is a round: blocks of whole steps at auto, the pairs, the pairs in reverse, auto again. A drift
that is linear over a round (data, temperature, learning rate) cancels in the ratio of the middle to the ends, and
rounds share no block, so they are independent.

Race: each round tries the pair that one draw of what is known would choose (Thompson sampling). Known is a Gaussian
process: physics of a board that is bound by its cores, or by its memory, in unknown shares, and a smooth rest.

Walk: at most two pairs, the one less likely to be over the limit first, are measured on in fresh rounds whose number is
fixed before. A pair passes where mean + Student's t x standard error keeps the limit, and its energy is lower in the
same way. The walk ends before the first that fails, so the pair that is kept is over the limit with a chance of at most
OVER (fixed-sequence testing; Maurer, Hothorn and Lehmacher 1995).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from kernel_dvfs.gpu.model import relative_bandwidth
from kernel_dvfs.student import t_quantile
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair, label, supported_core_mhz
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from typing import TypeAlias

    # one pair for the whole run, or the pair of each pass in the order of a step
    Setting: TypeAlias = "Pair | tuple[tuple[str, Pair], ...]"

OVER = 0.1  # chance that the pair that is kept is over the limit
RACE_SHARE = 0.2  # of the time, for the race
LEAST_ROUNDS = 4  # of a walk: of fewer a standard error says little
CHECK_ROUNDS = 6  # of a check of the pair that is kept
_CORES = 80  # core clocks that are candidates, at each memory clock
_RECENT, _FEW = 20, 6  # rounds that tell how blocks of one pair usually differ; differences that are too few for that
_BROKEN, _LEAST_BREAK = 6.0, 0.02  # times their spread, and least logarithm, of a difference that breaks a round
_MOST_SLOWER = 0.10  # a pair that is expected to be slower than the limit by more is not tried
_SHARE_SD = 0.3  # of what is bound by cores, and by memory, before anything is measured
_TIME_REST, _ENERGY_REST = 0.004, 0.02  # what physics leave open, as a share
_LENGTH = 0.15  # of the rest's smoothness, in logarithms of a clock
_NORMAL, _DRAWS = NormalDist(), 32
_BY_PASS, MOST_PASSES = 400, 4  # settings by pass that are candidates, and passes


class TrialBlock(NamedTuple):
    """Whole steps at one pair."""

    steps: int
    time_s: float
    energy_j: float  # of all GPUs


class Gain(NamedTuple):
    """Change of a pair against auto as logarithms of ratios, with standard errors and the rounds they rest on."""

    time: float
    time_se: float
    energy: float
    energy_se: float
    rounds: int

    def high(self, chance: float = OVER) -> tuple[float, float]:
        """Return (time, energy): what either exceeds with this chance only; infinite with fewer than two rounds."""
        if self.rounds < 2:
            return math.inf, math.inf
        t = t_quantile(self.rounds - 1, 1 - chance)
        return self.time + t * self.time_se, self.energy + t * self.energy_se


@dataclass(slots=True)
class Round:
    """Blocks of a round: auto, pairs, pairs in reverse, auto."""

    pairs: tuple[Setting, ...]
    blocks: list[TrialBlock] = field(default_factory=list)

    @property
    def order(self) -> list[Setting]:
        """Return the pair of each block."""
        return [BASELINE, *self.pairs, *reversed(self.pairs), BASELINE]

    def change(self, pair: Setting) -> tuple[float, float]:
        """Return (time, energy) of a step at the pair against auto, as logarithms of ratios."""
        place, times, energies = 1 + self.pairs.index(pair), [], []
        for block in self.blocks:
            times.append(math.log(block.time_s / block.steps))
            energies.append(math.log(block.energy_j / block.steps))
        return _middle(times, place), _middle(energies, place)

    def energy_j(self, pair: Setting) -> float:
        """Return the energy of the pair's two blocks."""
        return sum(block.energy_j for block, setting in zip(self.blocks, self.order) if setting == pair)

    def spreads(self) -> list[tuple[float, float]]:
        """Return (time, energy) differences of the two blocks of one pair, logarithms."""
        ends = zip(self.blocks[: len(self.blocks) // 2], reversed(self.blocks))
        return [
            (
                math.log(early.time_s / early.steps) - math.log(late.time_s / late.steps),
                math.log(early.energy_j / early.steps) - math.log(late.energy_j / late.steps),
            )
            for early, late in ends
        ]


class Procedure:
    """What to do next, block by block.

    board: what may be kept. slack_percent: the slowdown that is allowed. seed: of the draws. held: what an earlier
    procedure keeps, and why: it stays, unless something is shown to save more beside it. Call `pair` for the clocks of
    the next block and `add` with what came of it; `done_share` is how much of the time for tuning has gone.
    """

    def __init__(
        self,
        board: SettingsPrior,
        slack_percent: float,
        seed: int = 1,
        held: tuple[Setting, Gain | None] = (BASELINE, None),
    ) -> None:
        self.board, self.limit = board, math.log1p(slack_percent / 100)
        self._random = np.random.default_rng(seed)
        self.phase = "race"  # then walk, then keep
        self._held = held[0]
        self.kept, self.gain = held  # gain: of what is kept
        self.path: list[Setting] = []
        self.rounds: list[Round] = []  # all, in order
        self._walked: list[Round] = []
        self._broken = 0  # rounds dropped in a row
        self._now = Round((self._draw(),))

    @property
    def pair(self) -> Setting:
        """Return the clocks of the next block."""
        return self._now.order[len(self._now.blocks)]

    def add(self, block: TrialBlock, done_share: float) -> None:
        """A block has been measured at `pair`. done_share: of the time for tuning, 1 where it is over."""
        self._now.blocks.append(block)
        if len(self._now.blocks) < len(self._now.order):
            return
        if self._is_broken():
            self._begin()
            return
        self.rounds.append(self._now)
        if self.phase == "walk":
            self._walked.append(self._now)
        if self.phase == "race" and done_share >= RACE_SHARE:
            left = 1 - done_share
            # a round of the walk has more blocks where it walks by two pairs
            blocks = max(4.0 * LEAST_ROUNDS, len(self.rounds) * 4 * left / max(done_share, 1e-9))
            self.path = self._path(blocks)
            self.phase = "walk" if self.path else "keep"
        # a walk's length is fixed by the clock, not by what it shows
        elif self.phase == "walk" and done_share >= 1 and len(self._walked) >= LEAST_ROUNDS:
            self._choose()
            self.phase = "keep"
        self._begin()

    def drop(self) -> None:
        """Forget the round under way: something came between its blocks."""
        self._begin()

    def check(self, rounds: Sequence[Round]) -> bool:
        """Return whether the pair that is kept may stay, after fresh rounds of it; else auto is kept from here on.

        It goes where its time is over the limit, shown with the same chance of an error.
        """
        fresh = gain(rounds, self.kept)
        slow = t_quantile(fresh.rounds - 1, 1 - OVER) * fresh.time_se
        if fresh.time - slow > self.limit:
            self.kept, self.gain = BASELINE, None
            return False
        self.gain = fresh
        return True

    def tried(self) -> list[tuple[Setting, Gain]]:
        """Return each pair that was measured with what all rounds saw of it, the one seen most often first. The walk's
        own rounds alone decide; these are not independent of what chose them."""
        pairs = list(dict.fromkeys(pair for round_ in self.rounds for pair in round_.pairs))
        return sorted(((pair, gain(self.rounds, pair)) for pair in pairs), key=lambda entry: -entry[1].rounds)

    def more_percent(self, rounds: float) -> float:
        """Return what so many more rounds are expected to save at most, in points of auto's energy: by trying, as far
        as what is known leaves open which setting is best, and by showing one that is nearer to the limit."""
        time, energy, time_cov, energy_cov = self.known()
        limit = math.expm1(self.limit)
        draw = np.random.default_rng(0)  # not the race's own
        choice = np.where(time <= limit, energy, 0.0)
        at = int(np.argmin(choice))
        time_root, energy_root = _root(time_cov), _root(energy_cov)
        missed = []
        for _ in range(_DRAWS):
            drawn_time = time + time_root @ draw.standard_normal(len(time))
            drawn_energy = energy + energy_root @ draw.standard_normal(len(time))
            current = drawn_energy[at] if choice[at] < 0 else 0.0
            missed.append(current - min(0.0, current, np.where(drawn_time <= limit, drawn_energy, 0.0).min()))
        block_var, _ = scatter(self.rounds)
        done = max(1, len(self.rounds))

        def shown(count: float) -> float:
            doubt = _NORMAL.inv_cdf(1 - OVER) * math.sqrt(block_var / count)
            return float(np.where(time + doubt <= limit, energy, 0.0).min())

        return 100 * (sum(missed) / len(missed) + shown(done) - shown(done + rounds))

    def _is_broken(self) -> bool:
        """Return whether the training itself has changed within the round, as longer sequences do: blocks of one pair
        then differ far more than usual. It says nothing of a pair against auto, so dropping such a round favours
        none."""
        usual = sorted(abs(time) for round_ in self.rounds[-_RECENT:] for time, _ in round_.spreads())
        if len(usual) < _FEW:
            return False
        typical = 1.4826 * usual[len(usual) // 2]
        if max(abs(time) for time, _ in self._now.spreads()) > max(_BROKEN * typical, _LEAST_BREAK):
            self._broken += 1
            return self._broken <= 2  # more in a row are no break: steps scatter more than before
        self._broken = 0
        return False

    def _begin(self) -> None:
        if self.phase == "keep":
            self._now = Round((self.kept,))
        else:
            self._now = Round(tuple(self.path) if self.phase == "walk" else (self._draw(),))

    def known(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return means of time and energy (P,), changes as shares, and their covariances (P, P)."""
        board = self.board
        seen, times, energies = [], [], []
        for round_ in self.rounds:
            for pair in round_.pairs:
                slower, dearer = round_.change(pair)
                seen.append(board.place[pair])
                times.append(math.expm1(slower))
                energies.append(math.expm1(dearer))
        time_var, energy_var = scatter(self.rounds)
        time, time_cov = _posterior(board.time_mean, board.time_cov, seen, times, time_var)
        energy, energy_cov = _posterior(board.energy_mean, board.energy_cov, seen, energies, energy_var)
        return time, energy, time_cov, energy_cov

    def _draw(self) -> Setting:
        """Return the pair that one draw of what is known would choose."""
        time, energy, time_cov, energy_cov = self.known()
        limit = math.expm1(self.limit)
        drawn_time = time + _root(time_cov) @ self._random.standard_normal(len(time))
        drawn_energy = energy + _root(energy_cov) @ self._random.standard_normal(len(time))
        allowed = (drawn_time <= limit) & (time <= limit + _MOST_SLOWER)
        if not allowed.any():
            return self.board.pairs[int(np.argmin(time))]
        return self.board.pairs[int(np.argmin(np.where(allowed, drawn_energy, np.inf)))]

    def _path(self, blocks: float) -> list[Setting]:
        """Return what the walk of so many blocks tries, in this order: one or two settings, whichever is expected to
        save most; where something is held, that first and one other, or nothing."""
        time, energy, time_cov, _ = self.known()
        block_var, _ = scatter(self.rounds)
        sd = np.sqrt(np.maximum(np.diag(time_cov), 0))

        def chance(kinds: int) -> np.ndarray:
            """Return (P,) that a setting passes, where so many kinds of blocks take turns."""
            se = math.sqrt(2 * block_var / max(1.0, blocks / kinds))
            room = math.expm1(self.limit) - _NORMAL.inv_cdf(1 - OVER) * se - time
            return np.array([_NORMAL.cdf(score) for score in room / np.hypot(sd, se)])

        two = chance(3)
        if self._held != BASELINE:
            held = self.board.place[self._held]
            best = self.board.pairs[int(np.argmax(two * (energy[held] - energy)))]
            # nothing is expected to be better, or too few rounds of both would fit
            return [self._held, best] if best != self._held and blocks >= 6 * LEAST_ROUNDS else []
        alone = chance(2) * -energy
        # the second is walked to only after the first, which it has to beat
        more = np.minimum.outer(two, two) * np.maximum(np.subtract.outer(energy, energy), 0)
        together = (two * -energy)[:, None] + more
        if together.max() > alone.max() > 0 and blocks >= 6 * LEAST_ROUNDS:  # else it would outlast the time
            places = np.unravel_index(int(np.argmax(together)), together.shape)
            return list(dict.fromkeys(self.board.pairs[at] for at in places))
        return [self.board.pairs[int(np.argmax(alone))]] if alone.max() > 0 else []

    def _choose(self) -> None:
        least = math.inf
        for pair in self.path:
            walked = gain(self._walked, pair)
            time, energy = walked.high()
            if time > self.limit or energy >= 0:
                return
            if walked.energy < least:
                least = walked.energy
                self.kept, self.gain = pair, walked


def least_share(round_share: float) -> float:
    """Return after how much of the time for tuning a pair is kept at the earliest, where a round by one pair takes this
    share of it: more than 1 where so few rounds fit that the walk has to go on."""
    return max(1.0, (math.ceil(RACE_SHARE / round_share) + LEAST_ROUNDS) * round_share)


def gain(rounds: Sequence[Round], pair: Setting) -> Gain:
    """Return the mean change of a pair over independent rounds that hold it."""
    changes = [round_.change(pair) for round_ in rounds if pair in round_.pairs]
    n = len(changes)
    if not n:
        raise InputError(f"no round has measured {in_words(pair)}")
    statistics: list[float] = []
    for values in zip(*changes):
        mean = math.fsum(values) / n
        square = math.fsum((value - mean) ** 2 for value in values)
        statistics += [mean, math.sqrt(square / (n - 1) / n) if n > 1 else math.inf]
    time, time_se, energy, energy_se = statistics
    return Gain(time, time_se, energy, energy_se, n)


def scatter(rounds: Sequence[Round]) -> tuple[float, float]:
    """Return (time, energy) variance of one block's logarithm, which is that of a round's change too: the mean of two
    blocks against the mean of two others. Before anything is measured a guess, 1 % and 2 %, which counts for two
    blocks."""
    spreads = [spread for round_ in rounds for spread in round_.spreads()]
    n = len(spreads)
    return (
        (2 * 2 * 0.01**2 + math.fsum(time**2 for time, _ in spreads)) / (2 * (2 + n)),
        (2 * 2 * 0.02**2 + math.fsum(energy**2 for _, energy in spreads)) / (2 * (2 + n)),
    )


def in_words(setting: Setting) -> str:
    """Return a setting in words: `1470-5001`, or `forward 1470-auto, backward auto-auto`."""
    if isinstance(setting, Pair):
        return label(setting)
    return ", ".join(f"{name} {label(pair)}" for name, pair in setting)


def arguments(setting: Setting) -> str:
    """Return a setting as `kernel-dvfs apply` takes it."""
    if isinstance(setting, Pair):
        return f"--pair {setting[0]},{setting[1]}"
    return " ".join(f"--pair {name}={core},{mem}" for name, (core, mem) in setting)


class SettingsPrior(Protocol):
    """What a procedure chooses from: P settings, the place of each, and what is known of them before anything is
    measured: changes against auto as shares (P,), and their covariances (P, P)."""

    pairs: list[Any]
    place: dict[Any, int]
    time_mean: np.ndarray
    energy_mean: np.ndarray
    time_cov: np.ndarray
    energy_cov: np.ndarray


class Candidates:
    """Clock pairs that may be kept, and what physics say of them before anything is measured.

    clocks: as of the GPU's facts or a spec. spec: of the simulated board nearest to the GPU (gpu.spec.resolve).
    auto_core_mhz: the core clock that the training runs at auto, which a power limit may hold far below the highest;
    higher ones would change nothing and are left out. pairs: P; time_mean, energy_mean (P,): change against auto as a
    share; time_cov, energy_cov (P, P): how sure that is. Raises InputError where no clock of the GPU can be locked.
    """

    def __init__(self, clocks: Mapping[str, Any], spec: Mapping[str, Any], auto_core_mhz: float) -> None:
        gpu_clocks, known = dict(clocks), dict(spec)
        if not gpu_clocks["core_mhz"].get("listed", True):
            raise InputError("the driver lists no clocks of this GPU, so none can be tried; kernel-dvfs devices tells")
        top_mem = max(gpu_clocks["mem_mhz"], default=1)
        self.pairs: list[Pair] = []
        lower = sorted((mhz for mhz in gpu_clocks["mem_mhz"] if 0.4 * top_mem <= mhz < top_mem), reverse=True)
        for mem in [AUTO, *lower]:
            cores = [mhz for mhz in supported_core_mhz(gpu_clocks, mem) if 0.5 <= mhz / auto_core_mhz <= 1]
            step = max(1, math.ceil(len(cores) / _CORES))
            self.pairs += [Pair(core, mem) for core in cores[::-step]]
        self.place = {pair: place for place, pair in enumerate(self.pairs)}
        core = np.array([float(pair[0]) / auto_core_mhz for pair in self.pairs])
        mem = np.array([(top_mem if pair[1] == AUTO else float(pair[1])) / top_mem for pair in self.pairs])
        bandwidth = np.array([_bandwidth(known, float(share)) for share in mem])
        # time: shares of what the cores bind and what the memory binds; the rest is neither's
        bound = np.stack([1 / core - 1, 1 / bandwidth - 1])
        self.time_mean = np.array([0.4, 0.4]) @ bound
        self.time_cov = _SHARE_SD**2 * bound.T @ bound + self._rest(core, mem, _TIME_REST)
        # energy: half of the power goes with V^2 f, a quarter with the memory's clock, a quarter is always there
        rise = known["core"]["v_over_v0"]
        voltage = np.interp(core * auto_core_mhz, [mhz for mhz, _ in rise], [volt for _, volt in rise])
        voltage /= np.interp(auto_core_mhz, [mhz for mhz, _ in rise], [volt for _, volt in rise])
        drawn = np.stack([voltage**2 * core - 1, mem - 1])
        self.energy_mean = np.exp(np.log1p(self.time_mean) + np.log1p(np.array([0.5, 0.15]) @ drawn)) - 1
        parts = np.concatenate([drawn, bound])
        self.energy_cov = _SHARE_SD**2 * parts.T @ parts + self._rest(core, mem, _ENERGY_REST)

    @staticmethod
    def _rest(core: np.ndarray, mem: np.ndarray, sd: float) -> np.ndarray:
        apart = sum(np.subtract.outer(np.log(clock), np.log(clock)) ** 2 for clock in (core, mem))
        return sd**2 * np.exp(-0.5 * apart / _LENGTH**2)


class PassCandidates:
    """A pair for each pass, as `Candidates` has them for the whole run: what a pass does to a step counts by its share.

    whole: of the whole run. shares: {pass: share of a step's time at auto}, MOST_PASSES at most. held: the pair that is
    kept for the whole run. Where all passes have one pair, the setting is that pair.
    """

    def __init__(self, whole: Candidates, shares: Mapping[str, float], held: Pair) -> None:
        per_pass = max(2, int(_BY_PASS ** (1 / len(shares))))
        spread = whole.pairs[:: max(1, math.ceil(len(whole.pairs) / max(1, per_pass - 2)))]
        choices = list(dict.fromkeys([BASELINE, held, *spread]))[:per_pass]
        picked = [chosen for chosen in product(range(len(choices)), repeat=len(shares)) if any(chosen)]
        settings = [tuple((name, choices[place]) for name, place in zip(shares, chosen)) for chosen in picked]
        self.pairs = [setting[0][1] if len({pair for _, pair in setting}) == 1 else setting for setting in settings]
        self.place = {setting: place for place, setting in enumerate(self.pairs)}
        places, columns = [whole.place.get(pair) for pair in choices], np.array(picked).T
        weights = list(shares.values())
        for name in ("time", "energy"):
            mean, cov = getattr(whole, f"{name}_mean"), getattr(whole, f"{name}_cov")
            # auto changes nothing, for sure
            mean_of = np.array([0.0 if at is None else mean[at] for at in places])
            cov_of = np.array([[0.0 if a is None or b is None else cov[a, b] for b in places] for a in places])
            setattr(self, f"{name}_mean", sum(w * mean_of[column] for w, column in zip(weights, columns)))
            setattr(
                self, f"{name}_cov", sum(w**2 * cov_of[np.ix_(column, column)] for w, column in zip(weights, columns))
            )

    time_mean: np.ndarray
    energy_mean: np.ndarray
    time_cov: np.ndarray
    energy_cov: np.ndarray


def _bandwidth(spec: Mapping[str, Any], share: float) -> float:
    """Return the bandwidth at a share of the highest memory clock, relative to the highest: by the spec's nearest
    clock."""
    known = {float(mhz): relative_bandwidth(dict(spec["memory"]), int(mhz)) for mhz in spec["memory"]["eta"]}
    top = max(known)
    nearest = min(known, key=lambda mhz: abs(mhz / top - share))
    return known[nearest] / known[top] * share / (nearest / top)


def _middle(values: Sequence[float], place: int) -> float:
    last = len(values) - 1
    return (values[place] + values[last - place]) / 2 - (values[0] + values[last]) / 2


def _posterior(
    mean: np.ndarray, cov: np.ndarray, seen: list[int], values: list[float], variance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return a Gaussian process after values (N,) at the places `seen`, each with this variance of error."""
    if not seen:
        return mean, cov
    across = cov[:, seen]
    inner = cov[np.ix_(seen, seen)] + variance * np.eye(len(seen))
    solved = np.linalg.solve(inner, across.T)
    return mean + solved.T @ (np.array(values) - mean[seen]), cov - across @ solved


def _root(cov: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh((cov + cov.T) / 2)
    return vectors * np.sqrt(np.maximum(values, 0))
