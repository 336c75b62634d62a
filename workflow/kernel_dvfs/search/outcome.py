"""What a study by clock has found: for each level and limit the choice, and what the walk has shown for it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernel_dvfs.search import walk
from kernel_dvfs.search.knowledge import Knowledge, Pooled
from kernel_dvfs.search.parts import ChoiceLevel, Space
from kernel_dvfs_clocks.clocks import Pair


class WalkedChoice(NamedTuple):
    """The choice for a level and a limit, and what the walk has shown for it."""

    pairs: dict[str, Pair]  # of every target; all BASELINE where nothing was shown to keep the limit
    schedules: int  # of the path
    passed: int  # of these; 0: nothing was shown
    time_percent: tuple[float, ...]  # change against auto in each block
    energy_percent: float  # change against auto, as believed
    energy_se_percent: float
    over_percent: float
    worth_percent: float  # points of energy that another minute might gain


class StudyOutcome(NamedTuple):
    """What a study has found."""

    shown: dict[tuple[str, float], WalkedChoice]  # by level and limit
    table: Pooled
    visits: int
    sessions: int
    spent_s: float  # what sessions took to open included


def shown_of(
    space: Space,
    known: Knowledge,
    level: ChoiceLevel,
    path: np.ndarray,
    changes: np.ndarray,
    limit: float,
    over_percent: float,
    worth_percent: float,
) -> WalkedChoice:
    """Return the last schedule of a path (N, J) that a walk passed at a limit; auto where there is none, or it saves
    nothing.

    changes: (B, N) of time, percent, as the walk saw them. worth_percent: of another minute of it.
    """
    passed = walk.furthest(changes, limit, over_percent / 100)
    _, energy, drawn = known.of_level(level)
    row, choice = np.arange(len(energy)), np.zeros(len(energy), dtype=int)
    if passed and (energy[row, path[passed - 1]] - energy[:, 0]).sum() < 0:
        choice = path[passed - 1]
    else:
        passed = 0
    apart = (drawn[1][:, row, choice] - drawn[1][:, :, 0]).sum(1)
    blocks = changes[:, passed - 1] if passed else np.zeros(len(changes))
    return WalkedChoice(
        pairs={name: space.pairs[pair] for names, pair in zip(level.targets, choice.tolist()) for name in names},
        schedules=len(path),
        passed=passed,
        time_percent=tuple(blocks.tolist()),
        energy_percent=float((energy[row, choice] - energy[:, 0]).sum()),
        energy_se_percent=float(apart.std(ddof=1)),
        over_percent=over_percent,
        worth_percent=worth_percent,
    )
