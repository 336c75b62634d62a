"""How far measuring again scatters, and what it takes: many blocks on a simulated GPU of what a study by clock chose.

    python experiments/benchmarks/again_spread.py [--gpu SPEC] [--blocks N] [-o FILE]

Scatter is that of a block's change of time and energy against auto, in points; +- is the half of a 95 % interval over
as many blocks as config.yaml measures again (Student's t). Minutes are of virtual time, openings included.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "workflow"))

import numpy as np  # noqa: E402 - of this checkout

from kernel_dvfs.measurement import again, setup  # noqa: E402
from kernel_dvfs.measurement.simulated_iteration import SimulatedVisitor  # noqa: E402
from kernel_dvfs.measurement.target import MeasurementTarget  # noqa: E402
from kernel_dvfs.measurement.visit import OPENING_S, Visit, VisitMeasurement  # noqa: E402
from kernel_dvfs.plan.config import load  # noqa: E402
from kernel_dvfs.plan.study import ALONE, plan  # noqa: E402
from kernel_dvfs.report.remeasured import means  # noqa: E402
from kernel_dvfs.search import loop  # noqa: E402
from kernel_dvfs.student import t_quantile  # noqa: E402
from kernel_dvfs_clocks.clocks import Pair  # noqa: E402


class Clocked(SimulatedVisitor):
    """A simulated GPU that adds up what its visits take."""

    spent_s = 0.0

    def visit(self, visit: Visit) -> VisitMeasurement:
        """Measure."""
        visited = super().visit(visit)
        self.spent_s += visited["spent_s"]
        return visited


def blocks(gpu: str, count: int, folder: str) -> tuple[list[str], np.ndarray, float]:
    """Return (the choices, (count, choices, 2) changes of time and energy in percent, seconds of a block)."""
    planned = plan(load(str(ROOT / "config.yaml")) | ALONE | {"gpu": gpu}, folder)
    assert planned.setup, "a simulated GPU has a setup"
    path = planned.setup.write()
    options = planned.by_clock_options()
    study = loop.run(path, f"{folder}/m", options, f"{folder}/b.json", say=lambda line: None)
    own = setup.read(path)
    launches = {name: about["launches_per_iteration"] for name, about in own.targets["kernel"].items()}
    choices = [
        {MeasurementTarget(name.split("-")[0], each): Pair(*pair) for each, pair in walked["pairs"].items()}
        for name, walked in study.walks.items()
    ]
    board, changes = Clocked(own), []
    for repeat in range(count):
        for comparisons in again.compare_iteration(own, board, choices, repeat):
            total = sum(
                launches.get(each["target"], 1)
                * np.array([means(each["points"], "time_us"), means(each["points"], "energy_mj")])
                for each in comparisons
            )
            changes.append(100 * (total[:, 1] / total[:, 0] - 1))
    return list(study.walks), np.reshape(changes, (count, len(choices), 2)), board.spent_s / count + OPENING_S


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", nargs="+", default=["h200_sxm", "rtx_3080_ti"], metavar="SPEC")
    parser.add_argument("--blocks", type=int, default=80, metavar="N")
    parser.add_argument("-o", "--output", metavar="FILE", default=str(ROOT / "experiments/results/again_spread.txt"))
    options = parser.parse_args(arguments)
    repeats = load(str(ROOT / "config.yaml"))["validation_repeats"]
    half = t_quantile(repeats - 1, 0.975) / repeats**0.5
    lines = [
        f"Scatter of a block of measuring again, simulated, {options.blocks} blocks; +-: of {repeats} blocks, 95 %"
    ]
    for gpu in options.gpu:
        with tempfile.TemporaryDirectory() as folder:
            names, changes, block_s = blocks(gpu, options.blocks, folder)
        lines += ["", f"{gpu}: {block_s:.0f} s a block, {repeats * block_s / 60:.1f} minutes"]
        for name, sd in zip(names, changes.std(0, ddof=1)):
            said = (f"{what} {own:.3f} (+- {half * own:.3f})" for what, own in zip(("time", "energy"), sd))
            lines.append(f"  {name:16s} {', '.join(said)}")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    Path(options.output).write_text(text)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
