"""A profile of pipeline stages: time and energy of each stage's instructions at each clock. Read, checked, scaled.

Two layouts of CSV, told apart by their header:
    stage,instruction,core_mhz,mem_mhz,time_s,energy_j[,n,time_ci_s,energy_ci_j,source]    ours; mem_mhz may be empty
    stage,instruction,frequency,time,energy                             the Perseus artifact's, and Zeus's profiler's
With a column rank, dp_rank or tp_rank a stage has a row for each of its GPUs, as Zeus writes them: the stage takes the
longest of their times and the sum of their energies.
Traps of units: without such a column both hold ONE GPU's energy, and the artifact's emulation profiles are a tenth of
the real time and energy. So the scales are explicit: times x scale_time, energies x scale_energy, and nothing is scaled
unasked.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import whole
from kernel_dvfs_pipeline.csv_rows import read_rows

COLUMNS = (
    "stage",
    "instruction",
    "core_mhz",
    "mem_mhz",
    "time_s",
    "energy_j",
    "n",
    "time_ci_s",
    "energy_ci_j",
    "source",
)
_NEEDED = COLUMNS[:6]
# what tells the GPUs of a stage apart
_RANKS = ("rank", "dp_rank", "tp_rank")
_ARTIFACT = {"frequency": "core_mhz", "time": "time_s", "energy": "energy_j"}


Key = tuple[int, str]  # (virtual stage, instruction)
Clocks = tuple[float | None, float | None]  # (core, memory) MHz; None = auto or not recorded


def known_clocks(core_mhz: float, mem_mhz: float) -> Clocks:
    """The clocks of a pair in which nan stands for auto or not recorded."""
    core, mem = (None if math.isnan(mhz) else float(mhz) for mhz in (core_mhz, mem_mhz))
    return core, mem


class Settings(NamedTuple):
    """The options of one instruction of one stage, columns of one length (n,)."""

    core_mhz: np.ndarray  # nan = auto or not recorded
    mem_mhz: np.ndarray  # likewise
    time_s: np.ndarray
    energy_j: np.ndarray
    source: list[str]  # where the numbers come from: `measured` or `simulated ...`

    def clocks(self, row: int) -> Clocks:
        """The clocks of an option."""
        return known_clocks(self.core_mhz[row], self.mem_mhz[row])

    @property
    def keeps_clocks(self) -> bool:
        """Constant work without a clock of its own, such as loading data: it runs at whatever its stage runs at."""
        return len(self.time_s) == 1 and self.clocks(0) == (None, None)


class KernelClocks(Protocol):
    """Clocks of single kernels at the options of one instruction."""

    def at(self, option: int) -> dict[str, Clocks]:
        """{kernel id: its clocks} at an option."""


class StageProfile:
    """What each stage's instructions take at each of their settings.

    settings: by (virtual stage, instruction). name: for messages. kernel_clocks: for options that set the clocks of
    each kernel; {} where an option is one pair of clocks.
    """

    def __init__(
        self, settings: dict[Key, Settings], name: str, kernel_clocks: Mapping[Key, KernelClocks] | None = None
    ) -> None:
        self.settings = settings
        self.name = name
        self.kernel_clocks = kernel_clocks or {}

    @property
    def stages(self) -> int:
        """Virtual stages, numbered from 0."""
        return 1 + max(stage for stage, _ in self.settings)

    def of(self, stage: int, instruction: str) -> Settings:
        """Raises InputError naming the stage or instruction that is missing."""
        found = self.settings.get((stage, instruction))
        if found is None:
            has = sorted({kind for own, kind in self.settings if own == stage})
            what = f"stage {stage} lacks instruction '{instruction}'" if has else f"stage {stage} is missing"
            raise InputError(f"{self.name}: {what}; the schedule needs it: add its rows, or change the schedule")
        return found

    def has_choice(self, stage: int, instruction: str) -> bool:
        return len(self.of(stage, instruction).time_s) > 1


# no operation of a stage takes less, or more than a day and a GW; times are counted in whole ticks further on
_LEAST = 1e-9
_MOST = {"core_mhz": 20000, "mem_mhz": 20000, "time_s": 86_400, "energy_j": 1e12}


def read_stage_profile(
    path: Path | str, scale_time: float = 1.0, scale_energy: float = 1.0, name: str | None = None
) -> StageProfile:
    """A StageProfile from a CSV. Raises InputError, one line with file, line and column, for the first bad value."""
    for flag, scale in (("scale_time", scale_time), ("scale_energy", scale_energy)):
        if not (math.isfinite(scale) and scale > 0):
            raise InputError(f"{path}: {flag} = {scale}: expected a number > 0")
    columns, rows = read_rows(path, "stage profile")
    header = [_ARTIFACT.get(column, column) for column in columns]
    needed = [column for column in _NEEDED if column != "mem_mhz"]
    missing = [column for column in needed if column not in header]
    if missing:
        raise InputError(
            f"{path}: line 1: column {', '.join(missing)} missing; expected {','.join(_NEEDED)} "
            f"or stage,instruction,{','.join(_ARTIFACT)}"
        )
    if len(set(header)) != len(header):
        raise InputError(f"{path}: line 1: a column occurs twice")
    ranked = [column for column in _RANKS if column in header]
    found: dict[Key, dict[Clocks, dict[tuple, tuple]]] = {}
    for line, row in rows:
        cells = dict(zip(header, row))
        key, clocks, time_s, energy_j, source = _row(f"{path}: line {line}", cells)
        ranks = found.setdefault(key, {}).setdefault(clocks, {})
        rank = tuple(cells[column].strip() for column in ranked)
        if rank in ranks:
            of = f" on {' '.join(f'{column} {own}' for column, own in zip(ranked, rank))}" if ranked else ""
            raise InputError(f"{path}: line {line}: stage {key[0]} {key[1]} at these clocks{of} occurs twice")
        ranks[rank] = (time_s * scale_time, energy_j * scale_energy, source)
    if not found:
        raise InputError(f"{path}: no rows under the header; profile at least one stage")
    stages = {stage for stage, _ in found}
    absent = next(stage for stage in range(len(stages) + 1) if stage not in stages)
    if absent < max(stages):
        raise InputError(f"{path}: stage {absent} is missing, there is a stage {max(stages)}; number them from 0")
    made = {key: _settings(f"{path}: stage {key[0]} {key[1]}", own) for key, own in sorted(found.items())}
    return StageProfile(made, name or str(path))


def write_stage_profile(path: Path | str, profile: StageProfile) -> None:
    """Write the CSV, whole or not at all: a row per option, unscaled."""
    with whole(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*_NEEDED, "source"])
        for (stage, instruction), own in profile.settings.items():
            for core, mem, time_s, energy_j, source in zip(*own):
                cells = ["" if mhz != mhz else f"{mhz:g}" for mhz in (core, mem)]
                rows.writerow([stage, instruction, *cells, repr(float(time_s)), repr(float(energy_j)), source])


def _settings(where: str, own: dict[Clocks, dict[tuple, tuple]]) -> Settings:
    """The options of an instruction of a stage, each of one GPU or of all its ranks. Raises InputError."""
    every = set().union(*own.values())
    for pair, ranks in own.items():
        if len(ranks) < len(every):
            mhz = " and ".join(f"{each:g}" for each in pair if each is not None) or "auto"
            raise InputError(
                f"{where} at {mhz} MHz has rows of {len(ranks)} of {len(every)} ranks: profile all at the same clocks"
            )
    clocks = np.array(list(own), float)
    by_clocks = [list(ranks.values()) for ranks in own.values()]
    time_s = [max(each[0] for each in ranks) for ranks in by_clocks]
    energy_j = [sum(each[1] for each in ranks) for ranks in by_clocks]
    source = [ranks[0][2] for ranks in by_clocks]
    return Settings(clocks[:, 0], clocks[:, 1], np.array(time_s), np.array(energy_j), source)


def _row(where: str, cells: dict[str, str]) -> tuple[Key, tuple, float, float, str]:
    """((stage, instruction), clocks, time s, energy J, source) of a line."""
    stage = cells["stage"].strip()
    if not stage.isdecimal():
        raise InputError(f"{where}, column stage: '{stage}' is not a whole number >= 0")
    instruction = cells["instruction"].strip()
    if not instruction:
        raise InputError(f"{where}, column instruction: empty; expected forward, backward, ...")
    clocks = tuple(_clock(where, column, cells.get(column, "")) for column in ("core_mhz", "mem_mhz"))
    time_s, energy_j = (_positive(where, column, cells[column]) for column in ("time_s", "energy_j"))
    return (int(stage), instruction), clocks, time_s, energy_j, cells.get("source", "").strip() or "measured"


def _clock(where: str, column: str, text: str) -> float | None:
    text = text.strip()
    # None, not nan: two rows without a clock are the same setting
    return None if text in ("", "auto") else _positive(where, column, text)


def _positive(where: str, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}, column {column}: '{text}' is not a number") from None
    most = _MOST[column]
    if not _LEAST <= value <= most:
        raise InputError(
            f"{where}, column {column}: {text.strip()} is not possible; expected a number from {_LEAST:g} to {most:g}"
        )
    return value
