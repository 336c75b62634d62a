"""Make the tables of the shipped step again, from what was measured of it and is kept beside them.

The study of 2026-11-22 (own_step_workflow.py) kept its tables, not its records. What they did not say then follows from
what they say: the total below the power limit, the operations of its products, what a limit, a lock or another board
would do. Its measurements stay as they are, to the digit.

    PYTHONPATH=workflow python3 experiments/benchmarks/shipped_step.py
"""

import sys
import tempfile
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow"))

from kernel_dvfs.gpu.forecast import peak_tflop_per_s
from kernel_dvfs.profile.step import write_shipped_step
from kernel_dvfs.report.results import Results
from kernel_dvfs.shipped import STEP
from kernel_dvfs_step.report import costs as step_costs
from kernel_dvfs_step.report.tables import step_boards, step_limits


def tables() -> dict[str, pd.DataFrame]:
    """{name: table} of those that change, each with the column `gpu` of the others."""
    with tempfile.TemporaryDirectory() as folder:
        write_shipped_step(Path(folder))
        results = Results(folder)
        costs = step_costs.per_kernel(results).set_index("id")
        kernels = pd.read_csv(STEP / "step_kernels.csv", dtype=str, keep_default_na=False)
        named = costs.loc[kernels["id"]].reset_index()
        more = {
            "tflop_per_s": named.tflop_per_s,
            "peak_percent": 100 * named.tflop_per_s / peak_tflop_per_s(step_costs.spec_of(results)),
            "energy_per_pflop_j": named.j_per_pflop,
        }
        kernels = kernels.drop(columns=[*more], errors="ignore")
        place = kernels.columns.get_loc("expected")
        for number, (name, column) in enumerate(more.items()):
            kernels.insert(place + number, name, ["" if pd.isna(each) else f"{each:.6g}" for each in column])
        totals = pd.read_csv(STEP / "step_totals.csv", dtype=str, keep_default_na=False)
        at = totals.index[totals.step == "sum of its kernels"][0]
        for name, value in step_costs.summed(results, named).items():
            if name not in totals:
                totals.insert(totals.columns.get_loc("power_cap_share"), name, "")
            totals.loc[at, name] = repr(float(value))
        found = {"step_kernels": kernels, "step_totals": totals}
        for make in (step_limits, step_boards):
            table = make(results)
            table["gpu"] = kernels["gpu"][0]
            found[make.__name__] = table
        return found


if __name__ == "__main__":
    for name, table in tables().items():
        table.to_csv(STEP / f"{name}.csv", index=False, lineterminator="\n", float_format="%.6g")
