"""Clocks of a GPU: what can be asked for, what the board makes of it, and which pairs a sweep leaves out.

A clock is a number of MHz or `AUTO`, in each of two domains; (AUTO, AUTO) means that nothing is locked. The functions
take a GPU's `clocks` group: that of a spec (gpu.spec) or of a real GPU (nvml.facts). Wherever they take a pair, a
plain tuple of two clocks will do.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from kernel_dvfs_clocks.errors import InputError

AUTO = "auto"
Clock = int | str  # MHz, or AUTO
# the two domains, as the fields of a file and the columns of a table name them
DOMAINS: tuple[Literal["core_mhz", "mem_mhz"], ...] = ("core_mhz", "mem_mhz")


class Pair(NamedTuple):
    """Requested clocks."""

    core_mhz: Clock
    mem_mhz: Clock


BASELINE = Pair(AUTO, AUTO)
# NVML's event reasons (bits of a mask) that hold clocks below what was asked for
POWER_CAP = 0x4
THROTTLING = {
    POWER_CAP: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
# how a clock is locked: from the lowest clock up to the one that is asked for, or that one alone
LOCKS = RANGE, EXACT = "range", "exact"


def label(pair: tuple[float | str, float | str]) -> str:
    """Return a pair as file names and messages have it: `1470-5001`, `auto-auto`."""
    return f"{pair[0]}-{pair[1]}"


def key_of(pair: Sequence[Clock]) -> tuple[float | None, ...]:
    """Return a pair as a profile has it: MHz, None where left to the governor."""
    return tuple(None if clock == AUTO else float(clock) for clock in pair)


def clock_of(mhz: float | None) -> Clock:
    """Return a clock as it is asked for, of one as a profile has it."""
    return AUTO if mhz is None else int(mhz)


def clocks_argument(pairs: Iterable[Pair]) -> str:
    """Return the pairs of a sweep as one word for a command line: `auto-auto,210-405,...`."""
    return ",".join(label(pair) for pair in pairs)


def gpu_freq(pair: Pair) -> str:
    """Return the option that asks Slurm to set a clock pair: `--gpu-freq=1500,memory=2201`; "" where both are auto."""
    words = [str(pair[0])] if pair[0] != AUTO else []
    words += [f"memory={pair[1]}"] if pair[1] != AUTO else []
    return f"--gpu-freq={','.join(words)}" if words else ""


def is_number(text: str) -> bool:
    """Return whether a text is a whole number in plain digits, no longer than any clock in MHz or number of a GPU."""
    return text.isascii() and text.isdecimal() and len(text) <= 5


def parse(text: str, separator: str = ",") -> Pair:
    """Return a pair from `1470,5001` or `auto,9251`. Raises InputError."""
    parts = text.split(separator)
    if len(parts) != 2:
        raise InputError(f"clocks '{text}': expected CORE{separator}MEM, each a number of MHz or 'auto'")
    return Pair(*(parse_clock(part) for part in parts))


def parse_clock(text: str) -> Clock:
    """Return a clock in MHz or AUTO. Raises InputError."""
    if text == AUTO:
        return AUTO
    mhz = int(text) if is_number(text) else 0
    if mhz <= 0:
        raise InputError(f"clock '{text}': expected a positive whole number of MHz or 'auto'")
    return mhz


def supported_core_mhz(clocks: dict[str, Any], mem_mhz: Clock = AUTO) -> list[int]:
    """Return every core clock that the GPU lists beside a memory clock (AUTO: the highest), MHz, ascending.

    clocks["core_mhz"]: {lowest, highest, step}, the same beside every memory clock; or, as a driver tells it,
    {"listed": {memory clock: [core clocks, ascending]}}.
    """
    grid = clocks["core_mhz"]
    if "listed" in grid:
        return grid["listed"][max(grid["listed"], key=int) if mem_mhz == AUTO else str(mem_mhz)]
    return list(range(grid["lowest"], grid["highest"] + 1, grid["step"]))


def check(clocks: dict[str, Any], pair: tuple[Clock, Clock], where: str = "clocks") -> None:
    """Raise InputError if the GPU does not list a clock of `pair`. where: what the message begins with."""
    core, mem = pair
    if mem != AUTO and mem not in clocks["mem_mhz"]:
        known = ", ".join(map(str, clocks["mem_mhz"])) + ", or auto" if clocks["mem_mhz"] else "auto only"
        raise InputError(f"{where}: this GPU has no memory clock {mem} MHz to lock; allowed: {known}")
    if isinstance(core, int) and not _lists_core(clocks, core, mem):
        raise InputError(
            f"{where}: this GPU has no core clock {core} MHz{_beside(mem)}; allowed: {_cores(clocks, mem)}"
        )


def check_after(clocks: dict[str, Any], after: dict[str, list[int] | None], where: str = "after") -> None:
    """Raise InputError unless the clocks to leave behind, {domain: [lowest, highest] in MHz}, can be locked."""
    known = {
        "core": supported_core_mhz(clocks) if clocks["core_mhz"].get("listed", True) else [],
        "mem": clocks["mem_mhz"],
    }
    for domain, asked in after.items():
        if not asked:
            continue
        if asked[0] > asked[1]:
            raise InputError(f"{where}: {domain} {asked} MHz is not possible; allowed: [lowest, highest]")
        if not known[domain]:
            raise InputError(f"{where}: this GPU's {domain} clocks cannot be locked; allowed: null")
        if asked[1] < min(known[domain]) or asked[0] > max(known[domain]):
            raise InputError(
                f"{where}: {domain} {asked} MHz holds no clock of this GPU; allowed: within {min(known[domain])} to "
                f"{max(known[domain])}"
            )


def parse_after(text: str) -> dict[str, list[int] | None]:
    """Return clocks to leave behind, from `core=345-1700,mem=2201-3201` or a part of it. Raises InputError."""
    after: dict[str, list[int] | None] = {"core": None, "mem": None}
    for part in filter(None, text.split(",")):
        domain, _, clocks = part.partition("=")
        lowest, _, highest = clocks.partition("-")
        if domain not in after or not all(map(is_number, (lowest, highest))):
            raise InputError(f"after '{text}': expected core=LOWEST-HIGHEST,mem=LOWEST-HIGHEST in MHz, or one of them")
        after[domain] = [int(lowest), int(highest)]
    return after


def _lists_core(clocks: dict[str, Any], core_mhz: int, mem_mhz: Clock) -> bool:
    grid = clocks["core_mhz"]
    if "listed" in grid:
        return core_mhz in supported_core_mhz(clocks, mem_mhz)
    return grid["lowest"] <= core_mhz <= grid["highest"] and (core_mhz - grid["lowest"]) % grid["step"] == 0


def _beside(mem_mhz: Clock) -> str:
    return "" if mem_mhz == AUTO else f" at memory clock {mem_mhz} MHz"


def _cores(clocks: dict[str, Any], mem_mhz: Clock) -> str:
    """Return the core clocks in words: a range where they are evenly spaced, else all."""
    known = supported_core_mhz(clocks, mem_mhz)
    steps = {above - below for below, above in pairwise(known)}
    if len(steps) == 1:
        return f"{known[0]} to {known[-1]} in steps of {steps.pop()}, or auto"
    return f"{', '.join(map(str, known))}, or auto"


def _folds(clocks: dict[str, Any], pair: tuple[Clock, Clock]) -> bool:
    core, mem = pair
    fold = clocks.get("fold")
    if not fold or mem != fold["mem_mhz"]:
        return False
    return isinstance(core, str) or core > fold["above_core_mhz"]


def applied_mem_mhz(clocks: dict[str, Any], pair: tuple[Clock, Clock]) -> int:
    """Return the memory clock that the board really runs for a request: some boards fold one clock into another."""
    mem = pair[1]
    if isinstance(mem, str):
        return clocks["auto_mem_mhz"]
    return clocks["fold"]["becomes_mhz"] if _folds(clocks, pair) else mem


def asked_core_mhz(clocks: dict[str, Any], pair: tuple[Clock, Clock]) -> float:
    """Return the core clock that a request asks the board for, MHz, which sets its voltage; auto asks for the top."""
    core = pair[0]
    if isinstance(core, str):
        return top_core_mhz(clocks) if "top" in clocks else clocks["auto_core_mhz"]
    effective = clocks.get("effective_core_mhz", {}).get(str(core))
    return effective if effective is not None else min(core, top_core_mhz(clocks))


def top_core_mhz(clocks: dict[str, Any]) -> float:
    """Return the highest core clock that a cool board runs, however high the request, MHz."""
    top = clocks.get("top")
    return clocks["auto_core_mhz"] + top["above_auto_mhz"] if top else clocks["core_mhz"]["highest"]


def reached_core_mhz(clocks: dict[str, Any], pair: tuple[Clock, Clock], power_w: float) -> float:
    """Return the core clock that a request reaches below the power cap, MHz. power_w: mean power of the board."""
    return reached_at(clocks, pair)(power_w)


def reached_at(clocks: dict[str, Any], pair: tuple[Clock, Clock]) -> Callable[[float], float]:
    """Return the same as a function of the power. The top of the curve falls with it, where the GPU's spec says so: a
    board of more power is warmer."""
    asked, top = asked_core_mhz(clocks, pair), clocks.get("top")
    if not top:
        return lambda power_w: asked
    cool, lowest = clocks["auto_core_mhz"] if pair[0] == AUTO else top_core_mhz(clocks), clocks["core_mhz"]["lowest"]
    mhz_per_w, above_w = top["mhz_per_w"], top["above_w"]

    def reached(power_w: float) -> float:
        return max(lowest, min(asked, cool - mhz_per_w * max(0.0, power_w - above_w)))

    return reached


def _nearest(known: list[int], mhz: int) -> int:
    return min(known, key=lambda clock: abs(clock - mhz))


def sweep_pairs(clocks: dict[str, Any], grid: dict[str, Any]) -> tuple[list[Pair], list[tuple[Pair, str]]]:
    """Return the pairs of a sweep and those left out.

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
        core = sorted({_nearest(supported, mhz) for mhz in wanted})
    mem = clocks["mem_mhz"] if grid["mem_mhz"] == "all" else grid["mem_mhz"]
    cores: list[Clock] = sorted(set(core)) + ([AUTO] if grid["auto"] else [])
    mems: list[Clock] = sorted(set(mem)) + ([AUTO] if grid["auto"] else [])
    pairs = [BASELINE]
    omitted: list[tuple[Pair, str]] = []
    for mem_mhz in mems:
        for core_mhz in cores:
            pair = Pair(core_mhz, mem_mhz)
            check(clocks, Pair(core_mhz, AUTO), "grid")
            check(clocks, Pair(AUTO, mem_mhz), "grid")
            if isinstance(core_mhz, int) and not _lists_core(clocks, core_mhz, mem_mhz):
                omitted.append((pair, f"the GPU lists no core clock {core_mhz} MHz{_beside(mem_mhz)}"))
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
