"""Is the saving we claim the saving you get: before and after, at two tensor energies, many seeds.

`python benchmarks/selection_bias.py --first-seed 20000 --seeds 200 -o benchmarks/results` studies the simulated GPU of
config.yaml as its spec has it and with 1.0 pJ a tensor FLOP, each as `kernel-dvfs study selection-bias` does. It writes
selection_bias.csv (every figure), selection_bias.md (before and after in one table) and selection_bias_studies.csv
(one row a study, of these two procedures). Some five CPU minutes. Seeds of development were 0 to 9999.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from kernel_dvfs.files import write_text
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.plan.study import load, plan
from kernel_dvfs.studies.report.selection_bias import make
from kernel_dvfs.studies.sampling import truth
from kernel_dvfs.studies.selection_bias import arena, oracle, procedures, rows

ROOT = Path(__file__).resolve().parents[1]
SPECS = {"as the spec": {}, "1.0 pJ/FLOP": {"energy_pj": {"tensor_bf16_flop": 1.0}}}
QUICK = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": []}


def main() -> None:
    """Run the studies and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-seed", type=int, default=20000, metavar="N")
    parser.add_argument("--seeds", type=int, default=200, metavar="N")
    parser.add_argument("-o", "--output", default="benchmarks/results", metavar="DIR")
    options = parser.parse_args()
    config = load(str(ROOT / "config.yaml"))
    refine = config["refine"]
    ways = procedures(refine["rounds"], refine["gain"], refine["checks"], refine["margin_z"])
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    tables, studies, began_s = [], [], time.process_time()
    for name, overrides in SPECS.items():
        with tempfile.TemporaryDirectory() as folder:
            study = plan(config | QUICK | {"gpu_overrides": overrides}, folder)
            assert study.setup, "a simulated GPU has a setup"
            setup = read(study.setup.write())
        repeats = config["auto_repeats"], config["validation_repeats"]
        found = pd.DataFrame(rows(setup, study.pairs, ways, seeds, config["slack_percent"] / 100, *repeats))
        table = make(found, config["slack_percent"])
        known = truth(setup, study.pairs)
        best = oracle(arena(known, True), config["slack_percent"] / 100)[1]
        tables.append(table.assign(tensor_energy=name, best_possible_energy_percent=best))
        studies.append(found[found.procedure.isin([each.name for each in ways[-2:]])].assign(tensor_energy=name))
        print(f"{name}: {time.process_time() - began_s:.0f} CPU s so far", file=sys.stderr)
    whole = pd.concat(tables)
    write_text(f"{options.output}/selection_bias.csv", whole.to_csv(index=False, float_format="%.5g"))
    write_text(
        f"{options.output}/selection_bias_studies.csv", pd.concat(studies).to_csv(index=False, float_format="%.5g")
    )
    compared = whole[whole.procedure.isin([each.name for each in ways[-2:]])]
    write_text(f"{options.output}/selection_bias.md", text(compared, options))


def text(compared: pd.DataFrame, options: argparse.Namespace) -> str:
    """Before and after, a pair of rows for each tensor energy and noise."""
    head = (
        f"Simulated RTX 3080 Ti, GPT-3-xl; {options.seeds} studies of each (seeds {options.first_seed} to "
        f"{options.first_seed + options.seeds - 1}). Percent of auto. Before: ten rounds, margin of 2.6 standard "
        "errors, claim of the data that chose, all validation repeats in one session. After: rounds until settled, "
        "check, claim of the check, each validation repeat in a session of its own.\n\n"
    )
    columns = ["tensor energy", "noise", "", "rounds", "windows", "energy claimed", "true", "optimism, points"]
    columns += ["over the limit", "interval holds the true time / energy", "its half width, time / energy"]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for place, row in enumerate(compared.itertuples()):
        before = not place % 2
        held = [
            getattr(row, f"{each}_coverage_in_one_session" if before else f"{each}_coverage")
            for each in ("time", "energy")
        ]
        half = [
            getattr(row, f"{each}_half_width_in_one_session_pp" if before else f"{each}_half_width_pp")
            for each in ("time", "energy")
        ]
        cells = [row.tensor_energy, row.noise, "before" if before else "after", f"{row.rounds:.1f}"]
        cells += [f"{row.windows:,.0f}", f"{row.energy_claimed_percent:.2f}", f"{row.energy_true_percent:.2f}"]
        cells += [f"{row.energy_optimism_pp:+.2f}", f"{100 * row.over_budget:.1f} %"]
        cells += [" / ".join(f"{100 * each:.1f}" for each in held) + " %", " / ".join(f"{each:.2f}" for each in half)]
        lines.append(f"| {' | '.join(cells)} |")
    return head + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
