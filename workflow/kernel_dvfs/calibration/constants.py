"""The constants of a GPU that a fit may move, and a spec with them moved.

A constant is a list of places in the spec: what the spec gives one value moves together (e.g. the DRAM energy
scale of two memory clocks). What only sets a unit stays: bandwidth and DRAM energy at the reference memory
clock, the floor of the voltage.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import Any

Place = tuple[str | int, ...]  # keys and indices that lead to a value in a spec
Constant = Sequence[Place]  # the places that share the value

_MOVED = ("clocks", "memory", "core", "governor")


def time_constants(spec: dict[str, Any], mem_mhz: set[int]) -> list[Constant]:
    """The constants of time: effective core clocks, and bandwidth at each memory clock in `mem_mhz`."""
    clocks: list[Place] = [
        ("clocks", "effective_core_mhz", mhz) for mhz in spec["clocks"].get("effective_core_mhz", {})
    ]
    return [[place] for place in clocks + _by_memory("eta", mem_mhz - {spec["memory"]["reference_mhz"]})]


def power_constants(spec: dict[str, Any], mem_mhz: set[int]) -> list[Constant]:
    """The constants of power except voltage: static power and DRAM energy scale at `mem_mhz`, clock tree."""
    reference = ("memory", "dram_energy_scale", str(spec["memory"]["reference_mhz"]))
    scales: dict[float, list[Place]] = {}
    for place in _by_memory("dram_energy_scale", mem_mhz):
        scales.setdefault(read(spec, place), []).append(place)
    scales.pop(read(spec, reference), None)
    static: list[Constant] = [[place] for place in _by_memory("static_w", mem_mhz)]
    return [*static, [("core", "clock_w_per_ghz")], *scales.values()]


def voltages(spec: dict[str, Any]) -> list[Constant]:
    """Every point of the voltage curve, the floor first; without the last where that is the top (calibration.top)."""
    count = len(spec["core"]["v_over_v0"]) - ("top" in spec["clocks"])
    return [[("core", "v_over_v0", number, 1)] for number in range(count)]


def _by_memory(table: str, mem_mhz: Iterable[int]) -> list[Place]:
    return [("memory", table, str(mhz)) for mhz in sorted(mem_mhz)]


def read(spec: dict[str, Any], place: Iterable[str | int]) -> Any:
    """The value at a place of the spec."""
    node: Any = spec
    for step in place:
        node = node[step]
    return node


def values(spec: dict[str, Any], constants: Iterable[Constant]) -> list[float]:
    """The value of each constant."""
    return [float(read(spec, places[0])) for places in constants]


def with_values(spec: dict[str, Any], constants: Sequence[Constant], new: Iterable[float]) -> dict[str, Any]:
    """A copy of the spec with each constant at its new value."""
    spec = spec | {group: copy.deepcopy(spec[group]) for group in _MOVED}
    for places, value in zip(constants, new, strict=True):
        for *way, last in places:
            read(spec, way)[last] = float(value)
    return spec


def label(spec: dict[str, Any], constant: Constant) -> str:
    """A constant in words: `memory.static_w 405`, `core.v_over_v0 1470`."""
    group, table, *key = constant[0]
    if table == "v_over_v0":
        key = [spec["core"]["v_over_v0"][key[0]][0]]
    others = [place[-1] for place in constant[1:]]
    return " ".join([f"{group}.{table}", *map(str, [*key, *others])])
