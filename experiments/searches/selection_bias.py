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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np
import pandas as pd

from experiments.searches.array_study import (
    AUTO_REPEATS,
    OVER,
    Ground,
    cost_of,
    one_sweep,
    only_shown,
    probed,
    race_and_walk,
    races,
    streams,
    swept,
    validated,
    walk,
    windows_of,
)
from experiments.searches.sampling import Noise, Truth, high_noise, noise_of, truth
from experiments.searches.testbed import of_table
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_text
from kernel_dvfs.gpu.clocks import Pair, clock_of, supported_core_mhz
from kernel_dvfs.measurement.point import usual_s
from kernel_dvfs.measurement.setup import Setup, read
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import plan
from kernel_dvfs.search import race
from kernel_dvfs.search.candidates import Candidates, Context
from kernel_dvfs.search.guided import candidates_of

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config.yaml"
TABLES = ROOT.parent / "shared/data/measured"
QUICK = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": [], "headline_map": None}
RACE_AND_WALK, BOUND = "race and walk", "truth known, only shown"
STAGES = ("sweep", "race", "walk", "validation")
TEN_HOURS = 10
NOISES: dict[str, Callable[[Noise], Noise]] = {
    "spec": lambda own: own,
    "high": high_noise,  # time 1 %, power 2 % a measurement
    # a kernel at a pair differs by 1 % from session to session, all locked clocks against auto by 0.1 %
    "sessions": lambda own: replace(own, offset_sd=np.full_like(own.offset_sd, 0.01), locked_sd=0.001),
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
    probes: float | None = None  # a guided search measures so much of the sweep at most, a share; None: all is measured


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
    *(
        replace(own, name=f"{name}, {share:.0%} by a guided search", probes=share)
        for name, own in (
            ("80 pairs", Setting("", 4_100)),
            ("RTX 3080 Ti table", Setting("", 4_300, table="rtx3080ti_calibration.csv")),
            ("A100 table", Setting("", 3_900, table="a100_ttu.csv")),
        )
        for share in (0.1, 0.15, 0.3)
    ),
)


def study(ground: Ground, candidates: Candidates, setting: Setting, seed: int) -> list[dict[str, Any]]:
    """A study by each procedure, on the same sweep where it has one: a row for each limit."""
    draw, later, fresh, shown = streams(ground, seed)
    slacks = [limit / 100 for limit in setting.limits]
    sweep = swept(ground, draw)
    if setting.probes is not None:
        sweep = probed(ground, candidates, sweep, max(slacks), setting.probes, seed)
    ours = race_and_walk(ground, sweep, slacks, setting.budget, seed, later)
    windows = windows_of(sweep) + ours.about["race_windows"] + ours.about["walk_windows"]
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
            row |= {"sweep_windows": 0 if name == BOUND else windows_of(sweep)} | own.about
            row |= dict(zip(("time_claimed_percent", "energy_claimed_percent"), claimed))
            row |= dict(zip(("time_true_percent", "energy_true_percent"), own.view.change(option)))
            rows.append(row | validated(own, option, fresh))
    return rows


def stop_line(ground: Ground, setting: Setting, seed: int) -> list[dict[str, Any]]:
    """What TEN_HOURS more were said to bring at most, and what they brought in truth; points of auto's energy.

    At several places of a race, and of the walk that follows; for the first limit.
    """
    draw, later, _, _ = streams(ground, seed)
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
    path, outlook = race.path(raced.known, [slack]), race.outlook(raced.known, slack, seed)
    more = round(hours / cost_of(raced.view, path))
    time, energy = np.array(list(itertools.islice(walk(raced.view, path, later), 32 + more))).transpose(1, 0, 2)
    true = np.append(raced.view.change(path)[1], 0.0)  # the last: nothing passed
    for blocks in (4, 8, 16, 32):
        now, then = (outlook.walk(count, OVER) for count in (blocks, blocks + more))
        first, last = (
            race.passed(time[:count], energy[:count], 100 * slack, OVER) - 1 for count in (blocks, blocks + more)
        )
        said, brought = now - then, float(true[first] - true[last])
        rows.append({"stage": "walk", "blocks": blocks, "said": said, "brought": brought})
    return [{"setting": setting.name, "seed": seed} | row for row in rows]


def setup_of(setting: Setting) -> tuple[Setup, list[Pair]]:
    """The setup of the configuration with a setting's GPU, and the pairs of its sweep."""
    config = load(str(CONFIG)) | QUICK | {"gpu_overrides": dict(setting.overrides)}
    config |= {"grid": dict(setting.grid)} if setting.grid else {}
    with tempfile.TemporaryDirectory() as folder:
        planned = plan(config, folder)
        assert planned.setup, "a simulated GPU has a setup"
        return read(planned.setup.write()), list(planned.pairs)


def ground_of(setting: Setting) -> tuple[Ground, Candidates]:
    """The simulated GPU of the configuration, or a table of measurements, and what a guided search may ask for there.
    Raises InputError without that table."""
    setup, pairs = setup_of(setting)
    count = len(pairs)
    if setting.table:
        known, candidates = table_truth(TABLES / setting.table)
        count = len(known.pairs)
    else:
        if setting.fine:
            clocks = [core for core in supported_core_mhz(setup.gpu["spec"]["clocks"]) if core >= FINE_FROM_MHZ]
            mems = dict.fromkeys(pair.mem_mhz for pair in pairs)
            pairs = pairs + [Pair(core, mem) for mem in mems for core in clocks if Pair(core, mem) not in pairs]
        known = truth(setup, pairs)
        _, candidates = candidates_of(Context(setup, pairs[:count], AUTO_REPEATS, [0.0], "tied", None, {}))
    noise = NOISES[setting.noise](noise_of(setup.gpu["spec"], setup.measurement, known))
    return Ground(known, noise, count, 3600 / usual_s(setup.measurement)), candidates


def table_truth(path: Path) -> tuple[Truth, Candidates]:
    """A table of measurements as the truth, the baseline's time of each kernel the same share of an iteration."""
    if not path.exists():
        raise InputError(f"skipped: measured data not found at {path}")
    bed = of_table(path, "equal-time")
    keys, baseline = bed.candidates.pairs, bed.candidates.baseline
    if len(keys[0]) != 2 or (baseline != baseline[0]).any():
        raise InputError(f"{path}: needs core and memory clocks, no other setting, and one baseline for all kernels")
    order = [baseline[0], *(place for place in range(len(keys)) if place != baseline[0])]
    names = list(bed.candidates.targets)
    candidates = replace(
        bed.candidates,
        pairs=tuple(keys[place] for place in order),
        offered=bed.candidates.offered[:, order],
        baseline=np.zeros_like(baseline),
    )
    known = Truth(
        names=names,
        launches=bed.candidates.weight,
        groups=[None] * len(names),
        pairs=[Pair(*map(clock_of, keys[place])) for place in order],
        time_s=bed.time_s[:, order],
        energy_j=bed.energy_j[:, order],
        core_mhz=np.full((len(names), len(order)), np.nan),
    )
    return known, candidates


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
    """Race and walk beside its bound, the paper's way, and what the stop line said, as tables."""
    bounds, ours = (
        compared[compared.procedure == name].set_index(["setting", "limit_percent"]) for name in (BOUND, RACE_AND_WALK)
    )
    rows = []
    for (setting, limit), row in ours.iterrows():
        parts = ", ".join(f"{row[f'{stage}_windows']:,.0f}" for stage in STAGES)
        bound = bounds.loc[(setting, limit)]
        rows.append(
            {
                "": setting,
                "limit": f"{limit:g} %",
                "studies (from seed)": f"{row.studies} ({row.first_seed})",
                "windows: sweep, race, walk, validation": f"{row.windows:,.0f}: {parts}",
                "blocks raced, walked": f"{row.raced:.1f}, {row.walked:.1f}",
                "energy, true": f"{row.energy_true_percent:.2f}",
                "best possible": f"{row.best_possible_percent:.2f}",
                "share": f"{row.of_possible_percent:.1f} %",
                "share if the truth is known": f"{bound.of_possible_percent:.1f} %",
                "over the limit": f"{row.over_percent:.1f} %",
                "claimed - true, energy / time": f"{-row.energy_optimism_pp:+.3f} / {-row.time_optimism_pp:+.3f}",
                "interval holds the true time / energy": (
                    f"{row.time_coverage_percent:.1f} / {row.energy_coverage_percent:.1f} %"
                ),
                "its half width": f"{row.time_half_width_pp:.2f} / {row.energy_half_width_pp:.2f}",
            }
        )
    paper = [
        {
            "": row.setting,
            "limit": f"{row.limit_percent:g} %",
            "way": row.procedure,
            "energy claimed": f"{row.energy_claimed_percent:.2f}",
            "true": f"{row.energy_true_percent:.2f}",
            "time claimed": f"{row.time_claimed_percent:+.3f}",
            "time, true": f"{row.time_true_percent:+.3f}",
            "over the limit": f"{row.over_percent:.1f} %",
        }
        for row in compared[~compared.procedure.isin([RACE_AND_WALK, BOUND])].itertuples()
    ]
    parts = [
        "What procedures promise and deliver where the truth is known: simulated RTX 3080 Ti and GPT-3-xl, or a table "
        "of measurements taken as the truth. Changes in percent of auto, means over studies. Who knows the truth has "
        "only to show it: its walk takes as many windows as sweep, race and walk together.\n",
        f"**Race and walk**\n\n{_table(rows)}",
        f"**One sweep, the best believed**\n\n{_table(paper)}",
    ]
    if len(stops):
        lines = [
            {
                "after blocks of the": f"{stage}: {blocks}",
                "said": f"{own.said.mean():.3f}",
                "brought": f"{own.brought.mean():.3f}",
                "standard error": f"{own.brought.std() / np.sqrt(len(own)):.3f}",
            }
            for (stage, blocks), own in stops.groupby(["stage", "blocks"])
        ]
        parts.append(
            f"**The stop line**: what {TEN_HOURS} more hours were said to bring at most, and what they brought in "
            f"truth, points of energy ({stops.setting.iloc[0]}, {stops.seed.nunique()} studies, from seed "
            f"{stops.seed.min()})\n\n{_table(lines)}"
        )
    return "\n".join(parts)


def studied(setting: Setting, seeds: range, stop_seeds: range) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(rows of studies, rows of the stop line) of a setting; none without its table."""
    try:
        ground, candidates = ground_of(setting)
    except InputError as error:
        if not setting.table:
            raise
        print(f"{setting.name}: {error}", file=sys.stderr)
        return pd.DataFrame(), pd.DataFrame()
    best = {limit: ground.best(limit / 100)[1] for limit in setting.limits}
    found = pd.DataFrame([row for seed in seeds for row in study(ground, candidates, setting, seed)])
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
        whole = pd.concat(parts or [pd.DataFrame({"setting": []})])
        whole = whole.sort_values("setting", key=lambda own: own.map(order.index), kind="stable")
        write_text(str(path), whole.to_csv(index=False, float_format="%.5g"))
        # as written, so that a setting that is studied again leaves the others' figures as they are
        tables[name] = pd.read_csv(path)
    compared = make(tables["studies"])
    write_text(f"{options.output}/selection_bias.csv", compared.to_csv(index=False, float_format="%.5g"))
    write_text(f"{options.output}/selection_bias.md", text(compared, tables["stop"]))
    for row in compared[compared.procedure == RACE_AND_WALK].to_dict("records"):
        print(line(row))


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """As Markdown, titles from the first row."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([*row.values()] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
