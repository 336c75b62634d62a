"""The strict saving over what nobody has measured: tensor-core energy, traffic of dense products, top clock at auto.

Two more figures are less in doubt, the exponent of the time model (overlap) and what auto draws beyond the same clock
locked: they vary alone, and together at the corners of the box of the others.

On the truth of the simulated GPU (no noise, no selection), and with the exact choice: for kernels against the iteration
at auto, for passes against each pass at auto, also between the clocks of the grid, by halving. A kernel that does not
depend on what varies is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from kernel_dvfs.choice.global_waste import least_energy
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.scopes import solve
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import BASELINE, Pair, check, clock_of, key_of, supported_core_mhz
from kernel_dvfs.gpu.governor import Running
from kernel_dvfs.gpu.kernel import Work, parameters
from kernel_dvfs.layout import HEADLINE_AXES as AXES
from kernel_dvfs.layout import HEADLINE_ENDS as ENDS
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.simulated import Load, SimulatedGpu
from kernel_dvfs.search.between import at_auto, halfway
from kernel_dvfs.workload.formulas import gemm
from kernel_dvfs.workload.rows import Row, kernel_rows
from kernel_dvfs.workload.traffic import dense_gemm_byte

_ROW_OPTIONS = ("model", "batch", "tensor_parallel", "bias_split", "row_parallel_bias")
_DIGITS = 4

Spec = dict[str, Any]


def headline_map(
    setup: Setup, pairs: Sequence[Pair], axes: Mapping[str, Sequence[float]], ties: str
) -> list[dict[str, float | bool]]:
    """One row a point of the box of AXES, the setup's own values among those of each axis, and of what ENDS add to it.

    pairs: of the grid, the baseline among them. axes: of AXES all, of ENDS any. ties: tied or untied. Columns: AXES
    (pJ/FLOP at V0; DRAM bytes of the dense products over "each operand once"; MHz), ENDS (exponent; share of power),
    is_default (the setup as it is) and changes of the strict choice against auto, percent, of kernels and of passes.
    Raises InputError for a GPU that is not simulated, or an axis that is unknown, missing or empty.
    """
    if setup.gpu["kind"] != "simulated":
        raise InputError(f"gpu kind '{setup.gpu['kind']}' has no known truth; take a simulated GPU")
    wrong = [name for name in {*AXES, *axes} if not axes.get(name) or name not in AXES + ENDS]
    if wrong:
        raise InputError(f"axes {', '.join(sorted(wrong))}: expected {', '.join(AXES)}, each with a list of numbers")
    spec = setup.gpu["spec"]
    for pair in pairs:
        check(spec["clocks"], pair)
    rows = _rows(setup, spec)
    truths: dict[tuple[float, float], _Truth] = {}

    own = (
        spec["energy_pj"]["tensor_bf16_flop"],
        round(_multiple(rows, dense_gemm_byte(rows, spec)), _DIGITS),
        spec["clocks"]["auto_core_mhz"],
        spec["families"]["gemm"]["overlap"],
        spec["governor"]["auto_extra_power"],
    )
    found = []
    for point in _points(axes, own):
        is_default = point == own
        # the setup as it is, not to the digits that its traffic is written with
        moved = spec if is_default else _moved(spec, *point)
        loads = _Loads(setup, moved, dense_gemm_byte(rows, moved))
        truth = truths.setdefault((point[2], point[4]), _Truth(moved, setup.measurement))
        changes = {
            "kernel": _of_kernels(setup, pairs, ties, loads, truth),
            "pass": _of_passes(setup, pairs, loads, truth),
        }
        named = {
            f"{study}_{quantity}_change_percent": round(value, _DIGITS) + 0.0
            for study, each in changes.items()
            for quantity, value in zip(("time", "energy"), each)
        }
        found.append({**dict(zip(AXES + ENDS, point)), "is_default": is_default, **named})
    return found


def _points(axes: Mapping[str, Sequence[float]], own: tuple[float, ...]) -> list[tuple[float, ...]]:
    """The box of AXES with the own values of ENDS; each of these alone; and all of them at the corners of the box."""
    lines = [sorted({*axes[name], value}) for name, value in zip(AXES, own)]
    ends = [list(axes.get(name, ())) for name in ENDS]
    found = [(*point, *own[len(AXES) :]) for point in product(*lines)]
    for place, values in enumerate(ends, len(AXES)):
        found += [(*own[:place], value, *own[place + 1 :]) for value in values]
    if all(ends):
        found += product(*({line[0], line[-1]} for line in lines), *ends)
    return list(dict.fromkeys(found))


class _Truth:
    """True time and energy of loads at clock pairs, on the GPU of a spec; each point is computed once."""

    def __init__(self, spec: Spec, settings: Mapping[str, Any]) -> None:
        self.clocks = spec["clocks"]
        self._gpu = SimulatedGpu(spec, settings["seed"])
        self._warmup_s = settings["warmup_s"]
        self._known: dict[tuple, tuple[SimulatedGpu, dict[Pair, tuple[float, float, float]]]] = {}

    def of(self, load: Load, pairs: Sequence[Pair]) -> list[tuple[float, float, float]]:
        """(s, J, MHz reached) of one run of a load at each pair, the board as hot as the protocol makes it."""
        key = tuple(load)
        if key not in self._known:
            hot = self._gpu.copy()
            hot.condition(load)
            self._known[key] = hot, {}
        hot, known = self._known[key]
        for pair in pairs:
            if pair not in known:
                state = hot.warmed(load, pair, self._warmup_s)
                known[pair] = state.time_s, state.time_s * state.power_w, state.core_mhz
        return [known[pair] for pair in pairs]

    def at_auto(self, iteration: Load) -> list[tuple[float, float, float]]:
        """(s, J, MHz reached) of a launch of each kernel within an iteration at auto, the board hot from it."""
        hot = self._gpu.copy()
        hot.condition(iteration)
        running = Running(hot.spec, iteration, BASELINE)
        state = running.settled(hot.temperature_c)
        energies_j = running.launch_j(state, hot.temperature_c)
        return [(*each, state.core_mhz) for each in zip(running.launch_s(state), energies_j)]


class _Loads:
    """The loads of a setup's targets on a moved spec, dense products with other bytes."""

    def __init__(self, setup: Setup, spec: Spec, byte: Mapping[str, float]) -> None:
        works = {name: Work(*about["work"]) for name, about in setup.targets["kernel"].items()}
        moved = {name: work._replace(byte=byte.get(name, work.byte)) for name, work in works.items()}
        self._kernels = {name: parameters(spec, work) for name, work in moved.items()}

    def of(self, launches: Sequence[tuple[str, int]]) -> Load:
        return [(self._kernels[name], count) for name, count in launches]


def _of_kernels(setup: Setup, pairs: Sequence[Pair], ties: str, loads: _Loads, truth: _Truth) -> tuple[float, float]:
    kernels = setup.targets["kernel"]
    tied: dict[str, list[str]] = {}
    for name, about in kernels.items():
        group = about["replicate_group"] if ties == "tied" else None
        tied.setdefault(f"group {group}" if group else name, []).append(name)
    weight = [sum(kernels[name]["launches_per_iteration"] for name in names) for names in tied.values()]
    whole = truth.at_auto(loads.of([(name, about["launches_per_iteration"]) for name, about in kernels.items()]))
    in_iteration = dict(zip(kernels, whole))
    base = np.array([in_iteration[names[0]] for names in tied.values()])
    own = [loads.of([(names[0], 1)]) for names in tied.values()]
    return _strict(own, np.array(weight, float), pairs, truth, base)


def _of_passes(setup: Setup, pairs: Sequence[Pair], loads: _Loads, truth: _Truth) -> tuple[float, float]:
    found = [loads.of(launches) for launches in setup.targets["pass"].values()]
    return _strict(found, np.ones(len(found)), pairs, truth)


def _strict(
    loads: Sequence[Load],
    weight: np.ndarray,
    pairs: Sequence[Pair],
    truth: _Truth,
    baseline: np.ndarray | None = None,
) -> tuple[float, float]:
    """(change of time, change of energy), percent, of the least energy that takes no longer than the baseline.

    baseline: (loads, 3) what `truth` says of auto, where that is not each load by itself.
    """
    pairs, base = list(pairs), list(pairs).index(BASELINE)

    def supported(mem_mhz: float | None) -> list[int]:
        return supported_core_mhz(truth.clocks, clock_of(mem_mhz))

    points, new = np.zeros((len(loads), 0, 3)), list(pairs)
    while new:
        points = np.append(points, [truth.of(load, new) for load in loads], axis=1)
        if baseline is not None:
            points[:, base] = baseline
        time, energy = (weight[:, None] * points[:, :, place] for place in (0, 1))
        keys = [list(map(key_of, pairs))] * len(loads)
        problem = Problem.of(list(time), list(energy), [base] * len(loads), keys)
        strict = least_energy(problem, problem.baseline_time, effort=0)
        assert strict  # auto itself keeps the limit
        own = problem, strict.option, supported
        between = halfway(*own, len(loads)) + at_auto(*own, points[:, base, 2])
        new = [Pair(*map(clock_of, key)) for key in dict.fromkeys(between)]
        pairs += new
    answer = solve(problem, "global", "waste", 0.0, effort=0)
    # auto itself keeps the limit, so there is an answer
    assert answer.time is not None and answer.energy is not None
    return 100 * (answer.time / problem.baseline_time - 1), 100 * (answer.energy / problem.baseline_energy - 1)


def _moved(spec: Spec, energy_pj: float, traffic: float, core_mhz: float, overlap: float, extra: float) -> Spec:
    clocks = spec["clocks"] | {"auto_core_mhz": core_mhz}
    memory = spec["memory"] | {"gemm_traffic": max(1, traffic)}
    energy = spec["energy_pj"] | {"tensor_bf16_flop": energy_pj}
    governor = spec["governor"] | {"auto_extra_power": extra}
    usual = spec["families"]["gemm"]["overlap"]  # a family with an exponent of its own keeps it
    families = {
        name: own | {"overlap": overlap} if own["overlap"] == usual else own for name, own in spec["families"].items()
    }
    return spec | {
        "clocks": clocks,
        "memory": memory,
        "energy_pj": energy,
        "governor": governor,
        "families": families,
    }


def _rows(setup: Setup, spec: Spec) -> list[Row]:
    options = setup.workload
    return kernel_rows(
        **{key: options[key] for key in _ROW_OPTIONS},
        sm_count=spec["sm_count"],
        threads_per_sm=spec["threads_per_sm"],
        zipf_exponent=options["token_ids_zipf"],
    )


def _multiple(rows: Sequence[Row], byte: Mapping[str, float]) -> float:
    """DRAM bytes of the dense products of an iteration over "each operand once"."""
    dense = [row for row in rows if row.id in byte]

    def total(each: Iterator[float]) -> float:
        return math.fsum(row.multiplicity * value for row, value in zip(dense, each))

    once = (gemm(row.gemm).read_byte + gemm(row.gemm).write_byte for row in dense if row.gemm)
    return total(byte[row.id] for row in dense) / total(once) if dense else 1.0
