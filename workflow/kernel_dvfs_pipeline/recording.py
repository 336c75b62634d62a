"""From a training of your own to a CSV of stages: time and energy of each instruction, measured on every rank.

Knows no framework: what waits for the GPU and what reads its energy are given. docs/pipeline.md shows it with PyTorch.
Needs the standard library only, like all that runs beside a training.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import whole

# NVML's energy counter moves in steps of up to 0.1 s: in this time, an error of at most 2 % at either end
LEAST_S = 5.0
# files of a folder of `pipeline measure`
STAGES, GRAPH, LATENCY = "stages.csv", "graph.json", "latency.json"


class InstructionRow(NamedTuple):
    """What one rank takes for an instruction at a pair of clocks; a row of the CSV, whose columns these are."""

    stage: int
    instruction: str
    core_mhz: float | None  # None: auto
    mem_mhz: float | None
    time_s: float
    energy_j: float  # of this rank's GPU
    dp_rank: int
    tp_rank: int


class Recorder:
    """One rank of one stage.

    energy_j: the GPU's counter of energy, J. synchronise: returns when the GPU has done all that was launched.
    dp_rank, tp_rank: which data-parallel replica this is of, and which tensor-parallel part of the stage. clock_s:
    seconds since any moment.
    """

    def __init__(
        self,
        stage: int,
        energy_j: Callable[[], float],
        synchronise: Callable[[], object],
        dp_rank: int = 0,
        tp_rank: int = 0,
        clock_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.stage, self.dp_rank, self.tp_rank = stage, dp_rank, tp_rank
        self._energy_j, self._synchronise, self._clock_s = energy_j, synchronise, clock_s

    def measure(
        self,
        instruction: str,
        work: Callable[[], object],
        core_mhz: float,
        mem_mhz: float | None = None,
        repeats: int = 500,
    ) -> InstructionRow:
        """Run `work` once unmeasured, then `repeats` times; return the mean. The clocks must be set already.

        All tensor-parallel ranks need the same number of repeats, since they wait for each other. Raises InputError
        where all together takes less than LEAST_S, for which the counter of energy is too coarse.
        """
        if repeats < 1:
            raise InputError(f"stage {self.stage} {instruction}: {repeats} repeats: expected a whole number >= 1")
        work()
        self._synchronise()
        began_j, began_s = self._energy_j(), self._clock_s()
        for _ in range(repeats):
            work()
        self._synchronise()
        taken_s, taken_j = self._clock_s() - began_s, self._energy_j() - began_j
        if taken_s < LEAST_S:
            enough = math.ceil(repeats * LEAST_S / taken_s) if taken_s > 0 else "many more"
            raise InputError(
                f"stage {self.stage} {instruction}: {repeats} repeats take {taken_s:.3g} s, less than {LEAST_S:g} s; "
                f"ask for {enough} repeats"
            )
        mean_s, mean_j = taken_s / repeats, taken_j / repeats
        return InstructionRow(self.stage, instruction, core_mhz, mem_mhz, mean_s, mean_j, self.dp_rank, self.tp_rank)


def write_rows(path: Path | str, rows: Iterable[InstructionRow]) -> None:
    """Write the rows of all ranks as a CSV of stages, whole or not at all."""
    with whole(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(InstructionRow._fields)
        writer.writerows(sorted(rows, key=attrgetter("stage", "dp_rank", "tp_rank")))
