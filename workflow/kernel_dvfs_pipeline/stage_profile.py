"""A profile of pipeline stages: time and energy of each stage's instructions at each clock. Read, checked, scaled.

Two layouts of CSV, and what profile.raw reads of others (`Time [ms]`, energy_mj, semicolons):
    stage,instruction,core_mhz,mem_mhz,time_s,energy_j[,n,time_ci_s,energy_ci_j,source]    ours; mem_mhz may be empty
    stage,instruction,frequency,time,energy              the Perseus artifact's, and Zeus's profiler's, in MHz, s and J
Rows of equal settings are repeats, of which the mean counts. With a column rank, dp_rank or tp_rank a stage has a row
for each of its GPUs, as Zeus writes them. They are pooled and never summed, so energies are ONE GPU's in every file: a
stage takes as long as the slowest of its tensor-parallel ranks, which wait for each other; of that the mean over its
data-parallel replicas counts, and of energy the mean over all. Rows of the instruction `waiting` say what a GPU draws
while its stage waits for another, at whatever clocks.
Traps of units: the artifact's emulation profiles are a tenth of the real time and energy. So the scales are explicit:
times x scale_time, energies x scale_energy, and nothing is scaled unasked.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from kernel_dvfs.profile.raw import RawTable, read_csv
from kernel_dvfs.profile.units import LEAST_W, PER_JOULE, PER_SECOND, UNIT_NAMES, guess_pair, known_as, watts
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import whole

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
WAITING = "waiting"  # no work: what a stage draws while it waits
_HEADINGS = {column: column for column in (*COLUMNS, *_RANKS)} | {"time": "time_s", "energy": "energy_j"}
# of a row, which may be a stage of many GPUs: outside, time or energy is in another unit than its name says
_LEAST_W, _MOST_W, _MOST_GPUS = LEAST_W, 100e3, 72

Key = tuple[int, str]  # (virtual stage, instruction)
Clocks = tuple[float | None, float | None]  # (core, memory) MHz; None = auto or not recorded


def known_clocks(core_mhz: float, mem_mhz: float) -> Clocks:
    """Return the clocks of a pair in which nan stands for auto or not recorded."""
    core, mem = (None if math.isnan(mhz) else float(mhz) for mhz in (core_mhz, mem_mhz))
    return core, mem


class InstructionSettings(NamedTuple):
    """The options of one instruction of one stage, columns of one length (n,)."""

    core_mhz: np.ndarray  # nan = auto or not recorded
    mem_mhz: np.ndarray  # likewise
    time_s: np.ndarray
    energy_j: np.ndarray
    source: list[str]  # where the numbers come from: `measured` or `simulated ...`

    def clocks(self, row: int) -> Clocks:
        """Return the clocks of an option."""
        return known_clocks(self.core_mhz[row], self.mem_mhz[row])

    @property
    def keeps_clocks(self) -> bool:
        """Constant work without a clock of its own, such as loading data: it runs at whatever its stage runs at."""
        return len(self.time_s) == 1 and self.clocks(0) == (None, None)


class KernelClocks(Protocol):
    """Clocks of single kernels at the options of one instruction."""

    def at(self, option: int) -> dict[str, Clocks]:
        """Return {kernel id: its clocks} at an option."""


class StageProfile:
    """What each stage's instructions take at each of their settings.

    settings: by (virtual stage, instruction). name: for messages. kernel_clocks: for options that set the clocks of
    each kernel; {} where an option is one pair of clocks. notices: what of its file was left out. blocking_w: what a
    stage draws while it waits, W, scaled like the energies; None where no row says.
    """

    def __init__(
        self,
        settings: dict[Key, InstructionSettings],
        name: str,
        kernel_clocks: Mapping[Key, KernelClocks] | None = None,
        notices: Sequence[str] = (),
        blocking_w: float | None = None,
    ) -> None:
        self.settings = settings
        self.blocking_w = blocking_w
        self.name = name
        self.notices = list(notices)
        self.kernel_clocks = kernel_clocks or {}

    @property
    def stages(self) -> int:
        """Virtual stages, numbered from 0."""
        return 1 + max(stage for stage, _ in self.settings)

    def of(self, stage: int, instruction: str) -> InstructionSettings:
        """Return an instruction's settings. Raises InputError naming the stage or instruction that is missing."""
        settings = self.settings.get((stage, instruction))
        if settings is None:
            has = sorted({kind for number, kind in self.settings if number == stage})
            what = f"stage {stage} lacks instruction '{instruction}'" if has else f"stage {stage} is missing"
            raise InputError(f"{self.name}: {what}; the schedule needs it: add its rows, or change the schedule")
        return settings

    def has_choice(self, stage: int, instruction: str) -> bool:
        return len(self.of(stage, instruction).time_s) > 1


# no operation of a stage takes more than a day and a GW; times are counted in whole ticks further on
_MOST_S, _MOST_J = 86_400.0, 1e12


def read_stage_profile(
    path: Path | str,
    scale_time: float = 1.0,
    scale_energy: float = 1.0,
    name: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> StageProfile:
    """Return the StageProfile of a CSV. Raises InputError, a line with file, line and column, for the first bad value.

    columns: {column: its heading} where no heading says it.
    """
    for flag, scale in (("scale_time", scale_time), ("scale_energy", scale_energy)):
        if not (math.isfinite(scale) and scale > 0):
            raise InputError(f"{path}: {flag} = {scale}: expected a number > 0")
    raw = read_csv(path, lambda heading: _HEADINGS.get(heading) or known_as(heading), columns)
    time = next((column for column in PER_SECOND if column in raw.columns), None)
    energy = next((column for column in PER_JOULE if column in raw.columns), None)
    is_there = {"time_s": time, "energy_j": energy} | {column: raw.columns.get(column) for column in _NEEDED[:3]}
    if missing := [column for column in _NEEDED if column != "mem_mhz" and is_there[column] is None]:
        raise raw.fault(
            f"column {', '.join(missing)} missing; expected {','.join(_NEEDED)} or "
            "stage,instruction,frequency,time,energy"
        )
    assert time and energy  # neither is missing
    stages, instructions = raw.whole("stage"), raw.texts("instruction")
    if "" in instructions:
        raise raw.fault("empty; expected forward, backward, ...", "instruction", instructions.index(""))
    clocks = list(zip(*(_clocks(raw, column) for column in ("core_mhz", "mem_mhz")), strict=True))
    time_s = raw.positive(time, _MOST_S, PER_SECOND[time] / scale_time)
    energy_j = raw.positive(energy, _MOST_J, PER_JOULE[energy] / scale_energy)
    _check_power(raw, time, energy, time_s, energy_j, scale_energy / scale_time)
    sources = raw.texts("source") if "source" in raw.columns else [""] * raw.rows
    ranked = [column for column in _RANKS if column in raw.columns]
    ranks = list(zip(*map(raw.texts, ranked), strict=True))
    groups: dict[tuple[Key, Clocks, tuple[str, ...]], list[int]] = {}
    for row, key in enumerate(zip(stages, instructions, strict=True)):
        groups.setdefault((key, clocks[row], ranks[row] if ranks else ()), []).append(row)
    for column, values in ((time, time_s), (energy, energy_j)):
        raw.refuse_scatter(column, values, groups.values(), lambda row: f"stage {stages[row]} {instructions[row]}")
    measured: dict[Key, dict[Clocks, dict[tuple, tuple]]] = {}
    waits = [energy_j[row] / time_s[row] for row, instruction in enumerate(instructions) if instruction == WAITING]
    for (key, pair, rank), rows in groups.items():
        if key[1] == WAITING:
            continue
        if ranked and len(rows) > 1:  # two GPUs of one number are no repeats
            of = " ".join(f"{column} {value}" for column, value in zip(ranked, rank, strict=True))
            what = f"stage {key[0]} {key[1]} at these clocks on {of} occurs twice"
            raise raw.fault(what, "instruction", rows[1])
        means = (math.fsum(values[row] for row in rows) / len(rows) for values in (time_s, energy_j))
        measured.setdefault(key, {}).setdefault(pair, {})[rank] = (*means, sources[rows[0]] or "measured")
    if not measured:
        raise raw.fault("no work in it; expected forward, backward, ...", "instruction")
    numbers = {stage for stage, _ in measured}
    absent = next(stage for stage in range(len(numbers) + 1) if stage not in numbers)
    if absent < max(numbers):
        raise InputError(f"{path}: stage {absent} is missing, there is a stage {max(numbers)}; number them from 0")
    replica = ranked.index("dp_rank") if "dp_rank" in ranked else None
    settings = {
        key: _settings(f"{path}: stage {key[0]} {key[1]}", by_clocks, replica)
        for key, by_clocks in sorted(measured.items())
    }
    repeats = raw.rows - len(groups)
    pooled = [f"{path}: {repeats} rows are repeats of others; their means count"] if repeats else []
    parallel = max(
        len(members)
        for clocks in measured.values()
        for ranks in clocks.values()
        for members in _replicas(ranks, replica).values()
    )
    if parallel > 1 and scale_energy == 1:
        pooled.append(
            f"{path}: rows of {parallel} ranks a stage are pooled, energies are one GPU's: --scale-energy {parallel} "
            "makes them a stage's"
        )
    blocking_w = math.fsum(waits) / len(waits) if waits else None
    return StageProfile(settings, name or str(path), notices=[*raw.notices, *pooled], blocking_w=blocking_w)


def _clocks(raw: RawTable, column: str) -> list[float | None]:
    # None, not nan: two rows without a clock are the same setting
    return raw.clocks(column) if column in raw.columns else [None] * raw.rows


def _check_power(
    raw: RawTable, time: str, energy: str, time_s: list[float], energy_j: list[float], factor: float
) -> None:
    """Refuse a power that no stage draws. factor: of the power, by the scales, which may count a stage's GPUs."""
    gpus = factor / 1000 ** math.floor(math.log(factor, 1000))
    gpus = gpus if gpus <= _MOST_GPUS else 1.0
    for row, (took_s, used_j) in enumerate(zip(time_s, energy_j, strict=True)):
        power_w = used_j / took_s / gpus
        if not _LEAST_W <= power_w <= _MOST_W:
            units = [column.rpartition("_")[2] for column in (time, energy)]
            likely = [f"the {role} is in {UNIT_NAMES.get(unit, unit)}" for role, unit in guess_pair(power_w, *units)]
            raise raw.fault(
                f"{watts(power_w)}, which no GPU draws: likely {' or '.join(likely) or 'both are in other units'}; "
                "write s and J, name the unit in the heading, as in time_ms, or give --scale-time or --scale-energy",
                energy,
                row,
            )


def write_stage_profile(path: Path | str, profile: StageProfile) -> None:
    """Write the CSV, whole or not at all: a row per option, unscaled."""
    with whole(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*_NEEDED, "source"])
        for (stage, instruction), settings in profile.settings.items():
            for core, mem, time_s, energy_j, source in zip(*settings):
                cells = ["" if mhz != mhz else f"{mhz:g}" for mhz in (core, mem)]
                rows.writerow([stage, instruction, *cells, repr(float(time_s)), repr(float(energy_j)), source])


def _replicas(ranks: Iterable[tuple[str, ...]], replica: int | None) -> dict[str, list[tuple[str, ...]]]:
    """Return {data-parallel replica: its ranks}. replica: where in a rank's name it stands; None: all are of one."""
    by_replica: dict[str, list[tuple[str, ...]]] = {}
    for rank in ranks:
        by_replica.setdefault("" if replica is None else rank[replica], []).append(rank)
    return by_replica


def _settings(where: str, by_clocks: dict[Clocks, dict[tuple, tuple]], replica: int | None) -> InstructionSettings:
    """Return an instruction's options on a stage, pooled over ranks. replica: as of _replicas. Raises InputError."""
    every = set().union(*by_clocks.values())
    for pair, ranks in by_clocks.items():
        if len(ranks) < len(every):
            mhz = " and ".join(f"{clock:g}" for clock in pair if clock is not None) or "auto"
            raise InputError(
                f"{where} at {mhz} MHz has rows of {len(ranks)} of {len(every)} ranks: profile all at the same clocks"
            )
    clocks = np.array(list(by_clocks), float)
    time_s, energy_j, source = [], [], []
    for ranks in by_clocks.values():
        slowest_s = [max(ranks[rank][0] for rank in members) for members in _replicas(ranks, replica).values()]
        time_s.append(math.fsum(slowest_s) / len(slowest_s))
        energy_j.append(math.fsum(rank_j for _, rank_j, _ in ranks.values()) / len(ranks))
        source.append(next(iter(ranks.values()))[2])
    return InstructionSettings(clocks[:, 0], clocks[:, 1], np.array(time_s), np.array(energy_j), source)
