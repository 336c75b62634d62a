"""What a round of measurements asks for, and the form of a function that proposes one.

A proposer is a pure function of the profile so far: the same profile gives the same requests, so a round's plan is a
file that Snakemake can make again. Knows neither files nor Snakemake.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kernel_dvfs.gpu.clocks import AUTO, Pair


class Request(NamedTuple):
    """Measure one target at one clock pair: one record r<k>.json for each k of `repeats`.

    kind: `kernel` or `pass`. target: its name. core_mhz, mem_mhz: whole MHz or AUTO. repeats: numbers of the repeats,
    ascending; a sweep's is 0 (0 .. auto_repeats - 1 at auto, auto), measuring again goes on from there.
    """

    kind: str
    target: str
    core_mhz: int | str
    mem_mhz: int | str
    repeats: tuple

    @property
    def pair(self) -> Pair:
        """The clocks asked for."""
        return Pair(self.core_mhz, self.mem_mhz)


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


def is_baseline(core_mhz, mem_mhz) -> bool:
    """Whether a profile's or a request's clocks are the baseline (None and AUTO both mean auto)."""
    return core_mhz in (None, AUTO) and mem_mhz in (None, AUTO)


def to_json(requests: Sequence) -> list:
    """Requests as they stand in a round's file."""
    return [{**each._asdict(), "repeats": list(each.repeats)} for each in requests]


def from_json(content: Sequence) -> list:
    """Requests of a round's file."""
    return [Request(**{**each, "repeats": tuple(each["repeats"])}) for each in content]
