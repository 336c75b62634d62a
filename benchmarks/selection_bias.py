"""Is the saving we claim the saving you get: before and after, many seeds.

`python benchmarks/selection_bias.py --first-seed 20000 --seeds 200 --jobs 2 -o benchmarks/results` studies the
simulated GPU of config.yaml as `kernel-dvfs study selection-bias` does: at three noises, and at one with 1.0 pJ a
tensor FLOP. It writes selection_bias.csv (every figure), selection_bias.md (before and after in one table) and
selection_bias_studies.csv (one row a study). Seeds of development were 0 to 9999.
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import pandas as pd

from kernel_dvfs.files import write_text
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.plan.config import load, resolved
from kernel_dvfs.plan.study import plan
from kernel_dvfs.studies.report.selection_bias import make
from kernel_dvfs.studies.sampling import truth
from kernel_dvfs.studies.selection_bias import (
    HIGH_NOISE,
    SESSION_NOISE,
    SPEC_NOISE,
    arena,
    oracle,
    procedures,
    rows,
)

CONFIG = Path(__file__).resolve().parents[1] / "config.yaml"
QUICK = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": [], "headline_map": None}
CHEAP = {"energy_pj": {"tensor_bf16_flop": 1.0}}
# what tables call the GPU, figures of its spec that are replaced, noise, and how many of the procedures, the last ones
CASES = (
    ("as the spec", {}, SPEC_NOISE, 4),
    ("as the spec", {}, HIGH_NOISE, 2),
    ("as the spec", {}, SESSION_NOISE, 2),
    ("1.0 pJ/FLOP", CHEAP, SPEC_NOISE, 2),
)


def studied(case: tuple[str, dict, str, int], seeds: range) -> pd.DataFrame:
    """The studies of a case."""
    name, overrides, noise, count = case
    config = load(str(CONFIG))
    with tempfile.TemporaryDirectory() as folder:
        study = plan(config | QUICK | {"gpu_overrides": overrides}, folder)
        assert study.setup, "a simulated GPU has a setup"
        setup = read(study.setup.write())
    refine, slack = config["refine"], config["slack_percent"] / 100
    ways = procedures(refine["rounds"], refine["gain"], refine["checks"], refine["margin_z"])[-count:]
    repeats = resolved(config)["auto_repeats"], config["validation_repeats"]
    found = rows(setup, study.pairs, ways, seeds, slack, *repeats, at=(noise,))
    _, best = oracle(arena(truth(setup, study.pairs), True), slack)
    return pd.DataFrame(found).assign(tensor_energy=name, best_possible_energy_percent=best)


def text(compared: pd.DataFrame, seeds: range) -> str:
    """Before and after, a pair of rows for each case."""
    head = (
        f"Simulated RTX 3080 Ti, GPT-3-xl; {len(seeds)} studies of each (seeds {seeds[0]} to {seeds[-1]}). Percent of "
        "auto. Before: ten rounds, margin of 2.6 standard errors, claim of the data that chose, all validation "
        "repeats in one session. After: rounds until settled, check, claim of the check, each validation repeat in a "
        "session of its own.\n\n"
    )
    columns = ["tensor energy", "noise", "", "rounds", "windows", "energy claimed", "true", "best possible"]
    columns += ["optimism, points: energy / time", "over the limit", "interval holds the true time / energy"]
    columns += ["its half width, time / energy"]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for place, row in enumerate(compared.to_dict("records")):
        before = not place % 2
        where = "_in_one_session" if before else ""
        held = [100 * row[f"{each}_coverage{where}"] for each in ("time", "energy")]
        half = [row[f"{each}_half_width{where}_pp"] for each in ("time", "energy")]
        cells = [row["tensor_energy"], row["noise"], "before" if before else "after", f"{row['rounds']:.1f}"]
        cells += [f"{row['windows']:,.0f}"]
        cells += [f"{row['energy_claimed_percent']:.2f}", f"{row['energy_true_percent']:.2f}"]
        cells += [f"{row['best_possible_energy_percent']:.2f}"]
        cells += [f"{row['energy_optimism_pp']:+.2f} / {row['time_optimism_pp']:+.3f}"]
        cells += [f"{100 * row['over_budget']:.1f} %", f"{held[0]:.1f} / {held[1]:.1f} %"]
        lines.append(f"| {' | '.join([*cells, f'{half[0]:.2f} / {half[1]:.2f}'])} |")
    return head + "\n".join(lines) + "\n"


def main() -> None:
    """Run the studies and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-seed", type=int, default=20000, metavar="N")
    parser.add_argument("--seeds", type=int, default=200, metavar="N")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("-o", "--output", default="benchmarks/results", metavar="DIR")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with ProcessPoolExecutor(options.jobs) as pool:
        studies = list(pool.map(studied, CASES, repeat(seeds)))
    slack = load(str(CONFIG))["slack_percent"]
    own = ["tensor_energy", "best_possible_energy_percent"]
    tables = [make(each, slack).assign(**{name: each[name].iloc[0] for name in own}) for each in studies]
    whole = pd.concat(tables)
    write_text(f"{options.output}/selection_bias.csv", whole.to_csv(index=False, float_format="%.5g"))
    rest = pd.concat(studies).drop(columns="best_possible_energy_percent")
    write_text(f"{options.output}/selection_bias_studies.csv", rest.to_csv(index=False, float_format="%.5g"))
    write_text(f"{options.output}/selection_bias.md", text(pd.concat(each.tail(2) for each in tables), seeds))


if __name__ == "__main__":
    main()
