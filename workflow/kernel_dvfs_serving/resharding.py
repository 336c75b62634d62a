"""What it costs to change how one server's 8 GPUs are divided into instances.

Resident weight shards are kept where a maximum matching allows, only missing ones move, GPU to GPU, each GPU sending
and receiving at most one eighth of the weights per unit T. The published overhead matrix was not available; this one
was computed under that rule, of weights only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kernel_dvfs_clocks.errors import InputError

SERVER_GPUS = 8
Layout = tuple[int, ...]  # degrees of a server's instances, largest first
# in the order of the matrix
LAYOUTS = (
    (2,),
    (2, 2),
    (2, 2, 2),
    (2, 2, 2, 2),
    (4,),
    (4, 2),
    (4, 2, 2),
    (4, 4),
    (8,),
)
# units of T, from row to column
UNITS = (
    (0, 4, 8, 12, 2, 4, 8, 6, 3),
    (0, 0, 4, 4, 0, 2, 2, 2, 1),
    (0, 0, 0, 4, 0, 0, 2, 2, 1),
    (0, 0, 0, 0, 0, 0, 0, 0, 0),
    (2, 2, 4, 6, 0, 4, 4, 2, 1),
    (0, 2, 2, 4, 0, 0, 4, 2, 1),
    (0, 0, 2, 2, 0, 0, 0, 0, 0),
    (2, 2, 2, 2, 0, 2, 2, 0, 0),
    (3, 3, 3, 3, 1, 3, 3, 1, 0),
)


def check_degrees(degrees: Collection[int]) -> None:
    """Raise InputError unless servers can be divided by these degrees, and be one whole instance."""
    known = sorted({degree for layout in LAYOUTS for degree in layout})
    if SERVER_GPUS not in degrees or not set(degrees) <= set(known):
        raise InputError(
            f"degrees = {sorted(degrees)} are not possible; allowed: {', '.join(map(str, known))}, among them "
            f"{SERVER_GPUS} (servers are counted as whole instances)"
        )


def units(before: Layout, after: Layout) -> int | None:
    """Return the units of T from one layout to another; None where no weights are resident, which is a reload."""
    if not before:
        return None
    return 0 if not after else UNITS[LAYOUTS.index(before)][LAYOUTS.index(after)]


def layouts_for(counts: dict[int, int], servers: int) -> list[Layout]:
    """Return a pool's instances, {degree: count}, dealt to its servers largest first: `servers` layouts, some empty.

    Degrees are powers of two, so first-fit wastes nothing. Raises InputError where the GPUs do not suffice.
    """
    free = [SERVER_GPUS] * servers
    layouts: list[list[int]] = [[] for _ in range(servers)]
    for degree in sorted(counts, reverse=True):
        for _ in range(counts[degree]):
            place = next((place for place, gpus in enumerate(free) if gpus >= degree), None)
            if place is None:
                raise InputError(f"{counts} instances by degree do not fit into {servers} servers of 8 GPUs")
            free[place] -= degree
            layouts[place].append(degree)
    return [tuple(layout) for layout in layouts]


def assign(before: Sequence[Layout], after: Sequence[Layout]) -> list[int]:
    """Return which of the layouts `after` each server gets, so that fewest units move: a permutation of indices.

    before, after: one layout each for the same servers. An unchanged layout is preferred among equals; a reload counts
    as 100 units.
    """
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    cost = np.array([[_cost(old, new) for new in after] for old in before], dtype=float).reshape(len(before), -1)
    return linear_sum_assignment(cost)[1].tolist()


def _cost(old: Layout, new: Layout) -> float:
    if old == new:
        return 0.0
    moved = units(old, new)
    return 100.0 if moved is None else moved + 0.01
