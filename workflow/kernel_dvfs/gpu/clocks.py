"""Clocks of a GPU: what can be asked for, what the board makes of it, and which pairs a sweep leaves out.

A clock is a number of MHz or `AUTO`, in each of two domains; (AUTO, AUTO) means that nothing is locked.
Knows the spec's `clocks` group only: no kernels, no power, no measurements.
"""

from typing import NamedTuple

from kernel_dvfs.errors import InputError

AUTO = "auto"


class Pair(NamedTuple):
    """Requested clocks: MHz or AUTO each."""

    core_mhz: int | str
    mem_mhz: int | str


BASELINE = Pair(AUTO, AUTO)


def label(pair) -> str:
    """A pair as it stands in file names and messages: `1470-5001`, `auto-auto`."""
    return f"{pair[0]}-{pair[1]}"


def parse(text: str, separator: str = ",") -> Pair:
    """A pair from `1470,5001` or `auto,9251`. Raises InputError."""
    parts = text.split(separator)
    if len(parts) != 2:
        raise InputError(f"clocks '{text}': expected CORE{separator}MEM, each a number of MHz or 'auto'")
    return Pair(*(parse_clock(part) for part in parts))


def parse_clock(text):
    """A clock in MHz or AUTO. Raises InputError."""
    if text == AUTO:
        return AUTO
    try:
        mhz = int(text)
    except ValueError:
        mhz = 0
    if mhz <= 0:
        raise InputError(f"clock '{text}': expected a positive whole number of MHz or 'auto'")
    return mhz


def supported_core_mhz(clocks: dict, mem_mhz=AUTO) -> list:
    """Every core clock that the GPU lists beside a memory clock (AUTO: the highest), MHz, ascending.

    clocks["core_mhz"]: {lowest, highest, step}, the same beside every memory clock; or, as a driver tells it,
    {"listed": {memory clock: [core clocks, ascending]}}.
    """
    grid = clocks["core_mhz"]
    if "listed" in grid:
        return grid["listed"][max(grid["listed"], key=int) if mem_mhz == AUTO else str(mem_mhz)]
    return list(range(grid["lowest"], grid["highest"] + 1, grid["step"]))


def check(clocks: dict, pair, where: str = "clocks") -> None:
    """Raise InputError if the GPU does not list a clock of `pair`."""
    core, mem = pair
    if mem != AUTO and mem not in clocks["mem_mhz"]:
        known = ", ".join(map(str, clocks["mem_mhz"])) + ", or auto" if clocks["mem_mhz"] else "auto only"
        raise InputError(f"{where}: this GPU has no memory clock {mem} MHz to lock; allowed: {known}")
    if core != AUTO and not _lists_core(clocks, pair):
        raise InputError(
            f"{where}: this GPU has no core clock {core} MHz{_beside(pair)}; allowed: {_cores(clocks, mem)}"
        )


def _lists_core(clocks: dict, pair) -> bool:
    grid = clocks["core_mhz"]
    if "listed" in grid:
        return pair[0] in supported_core_mhz(clocks, pair[1])
    return grid["lowest"] <= pair[0] <= grid["highest"] and (pair[0] - grid["lowest"]) % grid["step"] == 0


def _beside(pair) -> str:
    return "" if pair[1] == AUTO else f" beside memory clock {pair[1]} MHz"


def _cores(clocks: dict, mem_mhz) -> str:
    """The core clocks in words: a range where they are evenly spaced, else all."""
    known = supported_core_mhz(clocks, mem_mhz)
    steps = {above - below for below, above in zip(known, known[1:])}  # noqa: RUF007 - pairwise is slow to import
    if len(steps) == 1:
        return f"{known[0]} to {known[-1]} in steps of {steps.pop()}, or auto"
    return f"{', '.join(map(str, known))}, or auto"


def _folds(clocks: dict, pair) -> bool:
    fold = clocks.get("fold")
    return bool(fold) and pair[1] == fold["mem_mhz"] and (pair[0] == AUTO or pair[0] > fold["above_core_mhz"])


def applied_mem_mhz(clocks: dict, pair) -> int:
    """The memory clock that the board really runs for a request (gpu-model: some fold to another)."""
    if pair[1] == AUTO:
        return clocks["auto_mem_mhz"]
    return clocks["fold"]["becomes_mhz"] if _folds(clocks, pair) else pair[1]


def ceiling_core_mhz(clocks: dict, pair, top_mhz: float) -> float:
    """The highest core clock that a request allows; `top_mhz` is where the highest requests really land."""
    if pair[0] == AUTO:
        return clocks["auto_core_mhz"]
    effective = clocks.get("effective_core_mhz", {}).get(str(pair[0]))
    return effective if effective is not None else min(pair[0], top_mhz)


def mean_top_core_mhz(clocks: dict) -> float:
    """Where the highest core clocks land on average, MHz; the highest clock where nothing else is known."""
    top = clocks.get("top_core_mhz")
    if not top:
        return clocks["core_mhz"]["highest"]
    return sum(float(mhz) * share for mhz, share in top.items()) / sum(top.values())


def sweep_pairs(clocks: dict, grid: dict):
    """The pairs of a sweep and those left out.

    grid: `core_mhz` (list, "all" or {"step": MHz} counted from the lowest clock), `mem_mhz` (list or "all"),
    `auto` (add AUTO in each domain). Returns (pairs, omitted): a list of Pair, and a list of (Pair, reason).
    The baseline is always first. Raises InputError for a clock that the GPU lacks.
    """
    supported = supported_core_mhz(clocks)
    core = grid["core_mhz"]
    if core == "all":
        core = supported
    elif isinstance(core, dict):
        # from the lowest clock to the highest, both included
        wanted = [*range(supported[0], supported[-1], core["step"]), supported[-1]]
        # a step off the GPU's own grid takes the nearest clocks that exist
        core = sorted({min(supported, key=lambda have, want=want: abs(have - want)) for want in wanted})
    mem = clocks["mem_mhz"] if grid["mem_mhz"] == "all" else grid["mem_mhz"]
    cores = sorted(set(core)) + ([AUTO] if grid["auto"] else [])
    mems = sorted(set(mem)) + ([AUTO] if grid["auto"] else [])
    pairs, omitted = [BASELINE], []
    for mem_mhz in mems:
        for core_mhz in cores:
            pair = Pair(core_mhz, mem_mhz)
            check(clocks, Pair(core_mhz, AUTO), "grid")
            check(clocks, Pair(AUTO, mem_mhz), "grid")
            if core_mhz != AUTO and not _lists_core(clocks, pair):
                omitted.append((pair, f"the GPU lists no core clock {core_mhz} MHz{_beside(pair)}"))
            elif _folds(clocks, pair):
                fold = clocks["fold"]
                omitted.append(
                    (
                        pair,
                        f"memory {fold['mem_mhz']} MHz exists only with core <= {fold['above_core_mhz']} MHz: "
                        f"the board would run memory at {fold['becomes_mhz']} MHz",
                    )
                )
            elif pair != BASELINE:
                pairs.append(pair)
    return pairs, omitted
