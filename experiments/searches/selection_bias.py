"""Is the saving we claim the saving you get, and how much of the possible is it? Studies over and over, truth known.

Procedures on the same sweeps: the paper's (one sweep, the best believed), every launch by itself or identical launches
pooled; and race and walk, by the functions and in the order of a study (search/race.py, search/loop.py). Beside them a
bound: the truth known, and only shown. All are judged by ten fresh blocks of auto and the choice, whose interval ought
to hold the truth, and by the truth itself: the expectation over everything that is drawn. A measurement is one window.

    python experiments/searches/selection_bias.py --first-seed 30000 --seeds 200

studies the simulated GPU of config.yaml in SETTINGS, and tables of measurements as if they were the truth. It writes
selection_bias.csv (every figure), selection_bias.md (tables), selection_bias_studies.csv (one row a study, procedure
and limit) and selection_bias_stop.csv (what a walk and a race said of more hours, and what these brought) into
experiments/results, and ends with a line for each setting. Seeds of development were 0 to 9999.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np
import pandas as pd

from experiments.searches.sampling import Campaign, Noise, Truth, high_noise, measure, noise_of, truth
from experiments.searches.testbed import of_table
from kernel_dvfs.choice.from_profile import problem_of
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.schedule_file import Left
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_text
from kernel_dvfs.gpu.clocks import Pair, supported_core_mhz
from kernel_dvfs.measurement.point import least_s
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import plan
from kernel_dvfs.profile.aggregate import standard_errors
from kernel_dvfs.search import race
from kernel_dvfs.search.candidates import clock_of, key_of
from kernel_dvfs.student import interval

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config.yaml"
TABLES = ROOT.parent / "shared/data/measured"
QUICK = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": [], "headline_map": None}
AUTO_REPEATS = 4  # of a sweep, each in a session of its own
OVER = 0.1  # the chance of a walk to be over its limit
VALIDATION = 10  # blocks
RACE_AND_WALK, BOUND = "race and walk", "truth known, only shown"
STAGES = ("sweep", "race", "walk", "validation")
TEN_HOURS = 10
# what measures the cells of a session
Measure = Callable[[np.ndarray], Campaign]
NOISES: dict[str, Callable[[Noise], Noise]] = {
    "spec": lambda own: own,
    "high": high_noise,  # time 1 %, power 2 % a measurement
    # a kernel at a pair differs by 1 % from session to session, all locked clocks against auto by 0.1 %
    "sessions": lambda own: replace(own, offset_sd=0.01, locked_sd=0.001),
}
CHEAP = {"energy_pj": {"tensor_bf16_flop": 1.0}}
UPPER = {"core_mhz": [1050, 1260, 1470, 1680, 1890, 2100], "mem_mhz": [5001, 9251, 9501], "auto": True}
FINE_FROM_MHZ = 1300  # below it no choice of these studies comes near


@dataclass(frozen=True, slots=True)
class Setting:
    """What is studied, and how many windows race and walk may take."""

    name: str
    budget: int
    noise: str = "spec"  # of NOISES
    overrides: Mapping[str, Any] = field(default_factory=dict)  # figures of the GPU's spec
    grid: Mapping[str, Any] | None = None  # of the sweep; None: the configuration's
    fine: bool = False  # whether the race may ask for clocks between the grid's
    limits: tuple[float, ...] = (0.0,)  # percent
    table: str = ""  # instead of the simulated GPU: measurements below TABLES, taken as the truth, each kernel alike


SETTINGS = (
    Setting("spec's noise", 12_900),
    Setting("high noise", 12_900, "high"),
    Setting("sessions differ by 1 %", 12_900, "sessions"),
    Setting("1.0 pJ/FLOP", 12_900, overrides=CHEAP),
    Setting("28 pairs swept, 4,000 windows", 1_200, grid=UPPER),
    Setting("28 pairs swept, 5,200 windows", 2_400, grid=UPPER),
    Setting("28 pairs swept, 6,000 windows", 3_200, grid=UPPER),
    Setting("28 pairs swept, 10,000 windows", 7_200, grid=UPPER),
    Setting("28 pairs swept, 17,000 windows", 14_200, grid=UPPER),
    Setting("fine clocks", 4_100, grid=UPPER, fine=True),
    Setting("fine clocks, four limits", 4_100, grid=UPPER, fine=True, limits=(0.0, 0.6, 1.0, 2.0)),
    Setting("RTX 3080 Ti table", 4_300, table="rtx3080ti_calibration.csv"),
    Setting("A100 table", 3_900, table="a100_ttu.csv"),
)


@dataclass(frozen=True, eq=False)
class Ground:
    """What is measured: a truth, the scatter about it, and what may be asked for."""

    known: Truth  # NaN where a kernel cannot be measured at a pair
    noise: Noise
    swept: int  # so many of the pairs, the first, are swept; the race may ask for the others
    an_hour: float  # measurements

    @cached_property
    def keys(self) -> list[tuple]:
        """(C,) the pairs as a problem names them."""
        return [key_of(pair) for pair in self.known.pairs]

    @cached_property
    def place(self) -> dict[tuple, int]:
        """{key: which of the pairs it is}."""
        return {key: place for place, key in enumerate(self.keys)}

    def supported(self, mem_mhz: float | None) -> list[float]:
        """Core clocks that may be asked for at a memory clock, MHz."""
        return [core for core, mem in self.keys if mem == mem_mhz and core is not None]

    @cached_property
    def exact(self) -> View:
        """The choice among all pairs, by the truth."""
        cell = np.flatnonzero(np.isfinite(self.known.time_s.ravel()))
        one = np.ones(len(cell))
        time, energy = (values.ravel()[cell] for values in (self.known.time_s, self.known.energy_j))
        return pooled(self, [Campaign(cell, one, time, energy, 0 * one, 0 * one)])

    def best(self, slack: float) -> np.ndarray:
        """[time, energy]: the change that one would make who knows the truth, percent."""
        return self.exact.change(race.chosen(self.exact.problem, [slack])[0])

    @cache  # noqa: B019 - a ground lives as long as its studies
    def best_path(self, slacks: tuple[float, ...]) -> np.ndarray:
        """(J, K): the path of one who knows the truth."""
        problem = self.exact.problem
        none = np.zeros((len(problem.targets), len(problem.keys)))
        return race.path(race.Estimate(problem, none, none, none, none, none[:, 0]), slacks)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A choice problem, and the cells (kernel x pair, flat) that its options stand for."""

    ground: Ground
    problem: Problem
    owner: np.ndarray  # (kernels,) target of each kernel
    pair: np.ndarray  # (N,) of each option

    @property
    def reached_mhz(self) -> np.ndarray:
        """(K,) core clock at the baseline, of the first launch of each target."""
        first = [self.ground.known.names.index(names[0]) for names in self.problem.members]
        return self.ground.known.auto_core_mhz[first]

    def block(self, wanted: np.ndarray, between: Collection[tuple] = ()) -> list[np.ndarray]:
        """The cells of each session of a block that measures these options (N,) bool, and every kernel at these keys.

        As loop.py spreads them: a kernel that is measured fewer times sits out some of the sessions.
        """
        pairs, count = len(self.ground.known.pairs), race.per_block(self.problem)
        row = {name: kernel for kernel, name in enumerate(self.ground.known.names)}
        asked: dict[int, list[int]] = defaultdict(list)
        for option in np.flatnonzero(wanted).tolist():
            for name in self.problem.members[self.problem.target[option]]:
                asked[row[name]].append(int(self.pair[option]))
        if between:
            for name in itertools.chain(*self.problem.members):
                asked[row[name]] += []
        new = [self.ground.place[key] for key in between]
        sessions = []
        for session in range(race.SESSIONS):
            cells = []
            for number, (kernel, own) in enumerate(asked.items()):
                every = race.SESSIONS // count[self.owner[kernel]]
                cells += [kernel * pairs + pair for pair in own if session % every == number % every]
                cells += [kernel * pairs + pair for pair in new if session == number % race.SESSIONS]
            sessions.append(np.array(cells, dtype=np.intp))
        return sessions

    def change(self, options: np.ndarray) -> np.ndarray:
        """(2, ...): change of an iteration's time and energy against auto in truth, percent, of choices (..., K)."""
        known, kernel = self.ground.known, np.arange(len(self.owner))
        pair = self.pair[options[..., self.owner]]
        whole = known.launches * np.array([known.time_s[:, 0], known.energy_j[:, 0]])
        chosen = (known.launches * values[kernel, pair] for values in (known.time_s, known.energy_j))
        return np.array([100 * (own.sum(-1) / auto.sum() - 1) for own, auto in zip(chosen, whole)])

    def changes(self, path: np.ndarray, sessions: Sequence[Campaign]) -> np.ndarray:
        """(2, J): change of time and energy that one block shows of each schedule of a path (J, K), percent of auto."""
        known, problem = self.ground.known, self.problem
        cell, time, energy = (
            np.concatenate([getattr(each, name) for each in sessions]) for name in ("cell", "time_s", "energy_j")
        )
        found, place = np.unique(cell, return_inverse=True)
        kernel, pair = np.divmod(found, len(known.pairs))
        table = np.zeros((len(problem.targets), len(known.pairs)), dtype=np.intp)
        table[problem.target, self.pair] = np.arange(len(problem.time))
        shown = []
        for values, whole in ((time, problem.baseline_time), (energy, problem.baseline_energy)):
            mean = np.bincount(place, values) / np.bincount(place)
            total = np.bincount(table[self.owner[kernel], pair], known.launches[kernel] * mean, len(problem.time))
            shown.append(100 * (total[path] - total[problem.baseline]).sum(1) / whole)
        return np.array(shown)


def pooled(ground: Ground, campaigns: Sequence[Campaign], ties: str = "tied") -> View:
    """What campaigns measured, pooled as a profile (profile.aggregate) and made a problem as a study's is."""
    known = ground.known
    cell, n, time, energy, time_squares, energy_squares = (
        np.concatenate([getattr(each, name) for each in campaigns])
        for name in ("cell", "n", "time_s", "energy_j", "time_squares", "energy_squares")
    )
    found, place = np.unique(cell, return_inverse=True)
    kernel, pair = np.divmod(found, len(known.pairs))
    total, keys = np.bincount(place, n), ground.keys
    columns: dict[str, Any] = {
        "study": np.full(len(found), "kernel", dtype=object),
        "target": np.array(known.names, dtype=object)[kernel],
        "launches_per_iteration": known.launches[kernel],
        "replicate_group": np.array(known.groups, dtype=object)[kernel],
        "core_mhz": [keys[each][0] for each in pair],
        "mem_mhz": [keys[each][1] for each in pair],
        "n": total,
        "verdict": np.full(len(found), "ok"),
        "is_baseline": pair == 0,
    }
    for column, error, values, squares in (
        ("time_s", "time_se_s", time, time_squares),
        ("energy_j", "energy_se_j", energy, energy_squares),
    ):
        columns[column] = np.bincount(place, n * values) / total
        columns[error] = standard_errors(cell // len(known.pairs), place, n, values, squares)
    problem = problem_of(columns, ("core_mhz", "mem_mhz"), "kernel", "counts", ties)
    target = {name: number for number, names in enumerate(problem.members) for name in names}
    own = np.array([ground.place[key] for key in problem.keys])
    return View(ground, problem, np.array([target[name] for name in known.names]), own[problem.key])


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a procedure chose for each limit, and what it claims for it."""

    view: View
    options: list[np.ndarray]  # (K,) each
    claimed: list[np.ndarray]  # [time, energy] each, percent of auto
    about: dict[str, int]  # blocks, and windows after the sweep


@dataclass(frozen=True, slots=True, eq=False)
class Raced:
    """Where a race has come to."""

    view: View
    known: race.Estimate
    blocks: int
    windows: int  # of the race so far
    left: list[Left]  # of each limit

    def score(self, slack: float, price: float) -> float:
        """What would be chosen now, in truth: change of energy + price x change of time, percent of auto's energy."""
        time, energy = self.view.change(race.chosen(self.known.problem, [slack])[0])
        return float(energy + price * time)


def swept(ground: Ground, measured: Measure) -> list[Campaign]:
    """A sweep: every pair of the grid once, auto AUTO_REPEATS times."""
    pairs = len(ground.known.pairs)
    cell = np.flatnonzero(np.isfinite(ground.known.time_s.ravel()))
    auto = cell[cell % pairs == 0]
    rest = cell[(cell % pairs > 0) & (cell % pairs < ground.swept)]
    return [*(measured(auto) for _ in range(AUTO_REPEATS)), measured(rest)]


def one_sweep(ground: Ground, sweep: Sequence[Campaign], slacks: Sequence[float], ties: str) -> Found:
    """The paper's way: what one sweep shows to be best, believed."""
    view = pooled(ground, sweep, ties)
    problem, options = view.problem, race.chosen(view.problem, slacks)
    totals = problem.time, problem.energy
    claimed = [
        np.array([100 * (values[option].sum() / values[problem.baseline].sum() - 1) for values in totals])
        for option in options
    ]
    return Found(view, options, claimed, {})


def races(
    ground: Ground, sweep: Sequence[Campaign], slacks: Sequence[float], budget: int, seed: int, measured: Measure
) -> Iterator[Raced]:
    """The race of a study as loop.py runs it: what is known before each block, and at last before the walk.

    budget: windows of race and walk. measured: measures what they ask for.
    """
    campaigns, spent = list(sweep), 0
    for blocks in itertools.count():
        view = pooled(ground, campaigns)
        known = race.estimate(view.problem, max(slacks))
        wanted = race.picks(known, slacks, np.random.default_rng([seed, blocks]))
        cost = sum(map(len, view.block(wanted)))
        rest = (budget - spent - cost) / cost
        left = [race.left(known, slack, [rest], ground.an_hour / cost, OVER, seed)[0] for slack in slacks]
        yield Raced(view, known, blocks, spent, left)
        if not race.races_on(left, spent, cost, budget):
            return
        between: dict[tuple, None] = {}
        if ground.swept < len(ground.keys):
            own = known.problem, slacks, ground.supported
            between = dict.fromkeys(race.at_auto(*own, view.reached_mhz) + race.halfway(*own))
        block = [measured(cell) for cell in view.block(wanted, between)]
        campaigns += block
        spent += _windows(block)


def walk(view: View, path: np.ndarray, measured: Measure) -> Iterator[np.ndarray]:
    """(2, J) change of time and energy of a path's schedules, percent of auto, in one fresh block after the other."""
    sessions = view.block(race.compared(view.problem, path))
    while True:
        yield view.changes(path, [measured(cell) for cell in sessions])


def race_and_walk(
    ground: Ground, sweep: Sequence[Campaign], slacks: Sequence[float], budget: int, seed: int, measured: Measure
) -> Found:
    """A study after its sweep: the race, then the walk until little is left to gain or the budget is spent."""
    *_, raced = races(ground, sweep, slacks, budget, seed, measured)
    known, path = raced.known, race.path(raced.known, slacks)
    cost = max(1, _cost(raced.view, path))
    most = max(race.LEAST_BLOCKS, (budget - raced.windows) // cost)
    counts = range(race.LEAST_BLOCKS, most + 1)
    left = zip(*(race.left(known, slack, counts, ground.an_hour / cost, OVER, seed) for slack in slacks))
    blocks = next((count for count, own in zip(counts, left) if race.is_shown(known, slacks, own)), most)
    about = {"raced": raced.blocks, "race_windows": raced.windows}
    return _walked(raced.view, path, slacks, blocks, about, measured)


def only_shown(ground: Ground, slacks: Sequence[float], windows: int, measured: Measure) -> Found:
    """What nobody can beat with so many windows: the truth is known, and has only to be shown by a walk."""
    path = ground.best_path(tuple(slacks))
    blocks = max(race.LEAST_BLOCKS, windows // max(1, _cost(ground.exact, path)))
    return _walked(ground.exact, path, slacks, blocks, {}, measured)


def validated(found: Found, option: np.ndarray, measured: Measure) -> dict[str, float]:
    """What VALIDATION fresh blocks of auto and a choice (K,) show, with 95 % intervals over blocks; percent of auto."""
    path = option[None]
    row: dict[str, float] = {"validation_windows": VALIDATION * _cost(found.view, path)}
    if not row["validation_windows"]:
        return row
    shown = np.array(list(itertools.islice(walk(found.view, path, measured), VALIDATION)))[:, :, 0]
    for quantity, values in zip(("time", "energy"), shown.T.tolist()):
        about = interval(values, [str(block) for block in range(VALIDATION)])
        row |= {f"{quantity}_fresh_percent": about.mean, f"{quantity}_half_width_pp": about.high - about.mean}
    return row


def study(ground: Ground, setting: Setting, seed: int) -> list[dict[str, Any]]:
    """A study by each procedure, on the same sweep where it has one: a row for each limit."""
    draw, later, fresh, shown = _streams(ground, seed)
    slacks = [limit / 100 for limit in setting.limits]
    sweep = swept(ground, draw)
    ours = race_and_walk(ground, sweep, slacks, setting.budget, seed, later)
    windows = _windows(sweep) + ours.about["race_windows"] + ours.about["walk_windows"]
    found = {
        "one sweep": one_sweep(ground, sweep, slacks, "untied"),
        "one sweep, replicates pooled": one_sweep(ground, sweep, slacks, "tied"),
        RACE_AND_WALK: ours,
        BOUND: only_shown(ground, slacks, windows, shown),
    }
    rows = []
    for name, own in found.items():
        for limit, option, claimed in zip(setting.limits, own.options, own.claimed, strict=True):
            row = {"setting": setting.name, "procedure": name, "limit_percent": limit, "seed": seed}
            row |= {"sweep_windows": 0 if name == BOUND else _windows(sweep)} | own.about
            row |= dict(zip(("time_claimed_percent", "energy_claimed_percent"), claimed))
            row |= dict(zip(("time_true_percent", "energy_true_percent"), own.view.change(option)))
            rows.append(row | validated(own, option, fresh))
    return rows


def stop_line(ground: Ground, setting: Setting, seed: int) -> list[dict[str, Any]]:
    """What TEN_HOURS more were said to bring at most, and what they brought in truth; points of auto's energy.

    At several places of a race, and of the walk that follows; for the first limit.
    """
    draw, later, _, _ = _streams(ground, seed)
    slack, hours = setting.limits[0] / 100, TEN_HOURS * ground.an_hour
    course = list(races(ground, swept(ground, draw), [slack], setting.budget, seed, later))
    exact = ground.exact.problem
    price = race.price(exact, slack) * exact.baseline_time / exact.baseline_energy
    rows = []
    for here in course[::4]:
        then = next((each for each in course if each.windows >= here.windows + hours), None)
        if then:
            said, brought = here.left[0]["race"], here.score(slack, price) - then.score(slack, price)
            rows.append({"stage": "race", "blocks": here.blocks, "said": said, "brought": brought})
    raced = course[-1]
    path = race.path(raced.known, [slack])
    more = round(hours / _cost(raced.view, path))
    time, energy = np.array(list(itertools.islice(walk(raced.view, path, later), 32 + more))).transpose(1, 0, 2)
    true = np.append(raced.view.change(path)[1], 0.0)  # the last: nothing passed
    for blocks in (4, 8, 16, 32):
        now, then = race.left(raced.known, slack, [blocks, blocks + more], more, OVER, seed)
        first, last = (
            race.passed(time[:count], energy[:count], 100 * slack, OVER) - 1 for count in (blocks, blocks + more)
        )
        said, brought = now["walk"] - then["walk"], float(true[first] - true[last])
        rows.append({"stage": "walk", "blocks": blocks, "said": said, "brought": brought})
    return [{"setting": setting.name, "seed": seed} | row for row in rows]


def ground_of(setting: Setting) -> Ground:
    """The simulated GPU of the configuration, or a table of measurements. Raises InputError without that table."""
    config = load(str(CONFIG)) | QUICK | {"gpu_overrides": dict(setting.overrides)}
    config |= {"grid": dict(setting.grid)} if setting.grid else {}
    with tempfile.TemporaryDirectory() as folder:
        planned = plan(config, folder)
        assert planned.setup, "a simulated GPU has a setup"
        setup = read(planned.setup.write())
    if setting.table:
        known = table_truth(TABLES / setting.table)
        count = len(known.pairs)
    else:
        pairs, count = list(planned.pairs), len(planned.pairs)
        if setting.fine:
            clocks = [core for core in supported_core_mhz(setup.gpu["spec"]["clocks"]) if core >= FINE_FROM_MHZ]
            mems = dict.fromkeys(pair.mem_mhz for pair in planned.pairs)
            pairs += [Pair(core, mem) for mem in mems for core in clocks if Pair(core, mem) not in planned.pairs]
        known = truth(setup, pairs)
    noise = NOISES[setting.noise](noise_of(setup.gpu["spec"], setup.measurement, known.time_s))
    return Ground(known, noise, count, 3600 / least_s(setup.measurement))


def table_truth(path: Path) -> Truth:
    """A table of measurements as the truth, the baseline's time of each kernel the same share of an iteration."""
    if not path.exists():
        raise InputError(f"skipped: measured data not found at {path}")
    bed = of_table(path, "equal-time")
    keys, baseline = bed.candidates.pairs, bed.candidates.baseline
    if len(keys[0]) != 2 or (baseline != baseline[0]).any():
        raise InputError(f"{path}: needs core and memory clocks, no other setting, and one baseline for all kernels")
    order = [baseline[0], *(place for place in range(len(keys)) if place != baseline[0])]
    names = list(bed.candidates.targets)
    return Truth(
        names=names,
        launches=bed.candidates.weight,
        groups=[None] * len(names),
        pairs=[Pair(*map(clock_of, keys[place])) for place in order],
        time_s=bed.time_s[:, order],
        energy_j=bed.energy_j[:, order],
        auto_core_mhz=np.full(len(names), np.nan),
    )


def make(studies: pd.DataFrame) -> pd.DataFrame:
    """A row for each setting, procedure and limit: means over the seeds.

    studies: rows of `study`, with best_possible_percent. over: share of studies whose true time exceeds the limit.
    coverage: share of those that changed anything whose validation's 95 % interval holds the truth.
    """
    rows = []
    for (setting, name, limit), own in studies.groupby(["setting", "procedure", "limit_percent"], sort=False):
        row = {"setting": setting, "procedure": name, "limit_percent": limit}
        row |= {"studies": len(own), "first_seed": own.seed.min()}
        row |= {each: own[each].mean() for each in ("raced", "walked")}
        parts = own[[f"{stage}_windows" for stage in STAGES]].fillna(0)
        row |= {"windows": parts.sum(axis=1).mean()} | parts.mean().to_dict()
        row |= {"best_possible_percent": own.best_possible_percent.iloc[0]}
        row |= {"of_possible_percent": 100 * own.energy_true_percent.mean() / own.best_possible_percent.iloc[0]}
        row |= {"over_percent": 100 * (own.time_true_percent > limit + 1e-6).mean()}
        for quantity in ("time", "energy"):
            claimed, fresh, true = (own[f"{quantity}_{each}_percent"] for each in ("claimed", "fresh", "true"))
            half = own[f"{quantity}_half_width_pp"]
            row |= {
                f"{quantity}_claimed_percent": claimed.mean(),
                f"{quantity}_true_percent": true.mean(),
                f"{quantity}_optimism_pp": (true - claimed).mean(),
                f"{quantity}_half_width_pp": half.mean(),
                f"{quantity}_coverage_percent": 100 * ((fresh - true).abs() <= half)[half.notna()].mean(),
            }
        rows.append(row)
    return pd.DataFrame(rows)


def line(row: Mapping[str, Any]) -> str:
    """What race and walk deliver in a setting."""
    limit = f", at {row['limit_percent']:g} %" if row["limit_percent"] else ""
    return (
        f"{row['setting']}{limit}: true {row['energy_true_percent']:.2f} of {row['best_possible_percent']:.2f} "
        f"({row['of_possible_percent']:.0f} %), over {row['over_percent']:.1f} %, "
        f"claimed - true {-row['energy_optimism_pp']:+.3f}, coverage {row['time_coverage_percent']:.1f} / "
        f"{row['energy_coverage_percent']:.1f} %, windows {row['windows']:.0f}"
    )


def text(compared: pd.DataFrame, stops: pd.DataFrame) -> str:
    """All procedures side by side, and what the stop line said."""
    titles = ["", "limit", "energy claimed", "true", "of the best possible", "time, true", "over the limit"]
    titles += ["true - claimed, energy / time", "interval holds the true time / energy", "blocks raced, walked"]
    titles += ["windows: sweep, race, walk, validation"]
    parts = [
        "What procedures promise and deliver where the truth is known: simulated RTX 3080 Ti and GPT-3-xl, or a table "
        "of measurements taken as the truth. Changes in percent of auto; means over studies. Made by "
        "`experiments/searches/selection_bias.py`.\n"
    ]
    for setting, own in compared.groupby("setting", sort=False):
        parts.append(f"**{setting}**: {own.studies.iloc[0]} studies, seeds from {own.first_seed.iloc[0]}\n")
        parts += [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
        for row in own.to_dict("records"):
            cells = [row["procedure"], f"{row['limit_percent']:g} %", f"{row['energy_claimed_percent']:.2f}"]
            cells += [f"{row['energy_true_percent']:.2f}", f"{row['of_possible_percent']:.0f} %"]
            cells += [f"{row['time_true_percent']:+.3f}", f"{row['over_percent']:.1f} %"]
            cells += [f"{row['energy_optimism_pp']:+.3f} / {row['time_optimism_pp']:+.3f}"]
            cells += [f"{row['time_coverage_percent']:.1f} / {row['energy_coverage_percent']:.1f} %"]
            cells += ["" if np.isnan(row["walked"]) else f"{np.nan_to_num(row['raced']):.1f}, {row['walked']:.1f}"]
            cells += [", ".join(f"{row[f'{stage}_windows']:,.0f}" for stage in STAGES)]
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    if len(stops):
        parts.append(
            f"**The stop line**: what {TEN_HOURS} more hours were said to bring at most, and what they brought in "
            f"truth, points of energy; {stops.setting.iloc[0]}, {stops.seed.nunique()} studies, seeds from "
            f"{stops.seed.min()}\n"
        )
        parts += ["| after blocks of the | | said | brought | standard error |", "|---|---|---|---|---|"]
        for (stage, blocks), own in stops.groupby(["stage", "blocks"], sort=False):
            error = own.brought.std() / np.sqrt(len(own))
            parts.append(f"| {stage} | {blocks} | {own.said.mean():.3f} | {own.brought.mean():.3f} | {error:.3f} |")
        parts.append("")
    return "\n".join(parts)


def studied(setting: Setting, seeds: range, stop_seeds: range) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(rows of studies, rows of the stop line) of a setting; none without its table."""
    try:
        ground = ground_of(setting)
    except InputError as error:
        if not setting.table:
            raise
        print(f"{setting.name}: {error}", file=sys.stderr)
        return pd.DataFrame(), pd.DataFrame()
    best = {limit: ground.best(limit / 100)[1] for limit in setting.limits}
    found = pd.DataFrame([row for seed in seeds for row in study(ground, setting, seed)])
    stops = [row for seed in stop_seeds if setting == SETTINGS[0] for row in stop_line(ground, setting, seed)]
    return found.assign(best_possible_percent=found.limit_percent.map(best)), pd.DataFrame(stops)


def main() -> None:
    """Run the studies and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-seed", type=int, default=30000, metavar="N")
    parser.add_argument("--seeds", type=int, default=200, metavar="N")
    parser.add_argument("--stop-seeds", type=int, default=50, metavar="N", help="studies of the stop line")
    parser.add_argument("--only", nargs="+", metavar="SETTING", help="these settings; rows of others stay as they are")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("-o", "--output", default=str(ROOT / "experiments/results"), metavar="DIR")
    options = parser.parse_args()
    settings = [each for each in SETTINGS if not options.only or each.name in options.only]
    unknown = set(options.only or ()) - {each.name for each in settings}
    if unknown:
        raise InputError(f"--only: no setting {', '.join(sorted(unknown))}; use {', '.join(s.name for s in SETTINGS)}")
    ranges = [range(options.first_seed, options.first_seed + count) for count in (options.seeds, options.stop_seeds)]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(studied, settings, *(itertools.repeat(each) for each in ranges)))
    order = [each.name for each in SETTINGS]
    tables = {}
    for name, new in zip(("studies", "stop"), zip(*found)):
        path = Path(f"{options.output}/selection_bias_{name}.csv")
        parts = [each for each in new if len(each)]
        if options.only and path.exists():
            before = pd.read_csv(path)
            parts.append(before[~before.setting.isin([each.name for each in settings])])
        tables[name] = pd.concat(parts or [pd.DataFrame({"setting": []})]).sort_values(
            "setting", key=lambda own: own.map(order.index), kind="stable"
        )
        write_text(str(path), tables[name].to_csv(index=False, float_format="%.5g"))
    compared = make(tables["studies"])
    write_text(f"{options.output}/selection_bias.csv", compared.to_csv(index=False, float_format="%.5g"))
    write_text(f"{options.output}/selection_bias.md", text(compared, tables["stop"]))
    for row in compared[compared.procedure == RACE_AND_WALK].to_dict("records"):
        print(line(row))


def _walked(
    view: View, path: np.ndarray, slacks: Sequence[float], blocks: int, about: dict[str, int], measured: Measure
) -> Found:
    """What a walk of so many blocks along a path shows for each limit."""
    problem, cost = view.problem, _cost(view, path)
    blocks = blocks if cost else 0
    about = about | {"walked": blocks, "walk_windows": blocks * cost}
    options, claimed = [problem.baseline] * len(slacks), [np.zeros(2)] * len(slacks)
    if blocks:
        time, energy = np.array(list(itertools.islice(walk(view, path, measured), blocks))).transpose(1, 0, 2)
        for number, slack in enumerate(slacks):
            passed = race.passed(time, energy, 100 * slack, OVER)
            if passed:
                options[number] = path[passed - 1]
                claimed[number] = np.array([time[:, passed - 1].mean(), energy[:, passed - 1].mean()])
    return Found(view, options, claimed, about)


def _streams(ground: Ground, seed: int) -> list[Measure]:
    """What measures the sweep, race and walk, the validation, and the walk of one who knows the truth."""
    return [partial(measure, ground.known, ground.noise, np.random.default_rng([seed, stream])) for stream in range(4)]


def _cost(view: View, path: np.ndarray) -> int:
    """Windows of a block of the walk along a path."""
    return sum(map(len, view.block(race.compared(view.problem, path))))


def _windows(campaigns: Sequence[Campaign]) -> int:
    return int(sum(each.n.sum() for each in campaigns))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
