"""The form of a function that proposes what a round measures.

A proposer is a pure function of the profile so far: the same profile gives the same requests, so a round's plan is a
file that Snakemake can make again. Knows neither files nor Snakemake.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kernel_dvfs.measurement.request import Request

__all__ = ["Context", "Proposer", "Request"]


class Context(NamedTuple):
    """What a proposer may know beside the profile.

    setup: measurement.setup.Setup: resolved GPU, work of each target ({kernel: {name: {work, launches_per_iteration,
    replicate_group, ...}}, pass: {...}}), protocol with the seed. pairs: [Pair] of the grid, the baseline first.
    auto_repeats: measurements of the baseline in a sweep. slacks_percent: tolerated slowdowns that are chosen for.
    ties, weights: as in choice.schedule.choose. options: the proposer's own keys of the configuration.
    """

    setup: Any
    pairs: Sequence
    auto_repeats: int
    slacks_percent: Sequence
    ties: str
    weights: str | None
    options: Mapping


# propose(profile_rows, context, round_number) -> [Request]; empty: finished.
# profile_rows: {column: list} with the columns of a profile (profile.store.COLUMNS; one row a target and pair, repeats
# pooled, a clock of None = auto), no rows at all before anything is measured. round_number: 1, 2, ...: rounds of this
# proposer, the present one included. Asking again for repeats that exist is allowed: they are not measured twice.
Proposer = Callable[[Mapping, Context, int], list]
