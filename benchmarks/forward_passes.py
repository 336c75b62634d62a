"""What whole forward passes, measured by others, say of tensor cores and of the simulated A100.

    python benchmarks/forward_passes.py tensor     # energy of a tensor-core FLOP on a GA102 (A10)
    python benchmarks/forward_passes.py a100       # the simulated A100 40 GB PCIe against 15 workloads at 11 clocks

Facts: benchmarks/data/energaizer_forward_passes.csv (MIT). Nothing is fitted to a single workload.
"""

import argparse
import os
import sys
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "workflow"))

from kernel_dvfs.calibration.forward_passes import ARCHITECTURES, Run, energies, read_runs
from kernel_dvfs.calibration.pass_fit import fit, fit_times, simulate
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.governor import State
from kernel_dvfs.workload.traffic import Cache, gemm_byte

FACTS = Path(__file__).parent / "data" / "energaizer_forward_passes.csv"
A10 = "A10"  # GA102 like the RTX 3080 Ti: 72 SMs, GDDR6, 150 W; all runs at 900 MHz, at or near the voltage's floor
A100 = "A100 40GB PCIe"
# where the fit of the A100 PCIe starts: idle power of the artifact, the rest as the A100 SXM
START = {
    "memory": {"static_w": {"1215": 45}},
    "core": {"clock_w_per_ghz": 7.5},
    "energy_pj": {"tensor_bf16_flop": 1, "fp32_flop": 2, "dram_byte": 51, "stream_byte": 25, "sm_cycle": 800},
}
_WAITS_W = 100  # below this an A10 waits for its host most of the time
TILES = ((256, 128), (128, 128))


def streaming_byte_pj(spec: dict) -> float:
    """Energy of a byte from DRAM through the SMs at V0, as the spec of a GPU has it, pJ."""
    energy, family = spec["energy_pj"], spec["families"]["residual"]
    return energy["dram_byte"] + energy["stream_byte"] + energy["sm_cycle"] / family["sm_byte_per_clock"]


def tensor_fits(runs: list[Run]) -> list[tuple[str, float]]:
    """[(in words, pJ per tensor-core FLOP)]: each way to read the A10's runs, tile by tile."""
    busy = [run for run in runs if run.power_w >= _WAITS_W]
    ga102, ga104 = (streaming_byte_pj(specs.resolve(name)) for name in ("rtx_3080_ti", "rtx_a4000"))
    ways = (
        (f"{len(runs)} runs, byte free", runs, None),
        (f"{len(busy)} runs that keep the GPU busy, byte free", busy, None),
        (f"the same, byte {ga102:.0f} pJ (GDDR6X: spec of the RTX 3080 Ti)", busy, ga102),
        (f"the same, byte {ga104:.0f} pJ (GDDR6: spec of the RTX A4000)", busy, ga104),
    )
    found = []
    for words, chosen, byte_pj in ways:
        for tile in TILES:
            cache = Cache(6e6, 72, tile)
            fit = energies(chosen, lambda g, cache=cache: gemm_byte(g, cache), byte_pj)
            (watt, _), (pj, sd), (byte, _) = fit.standing_w, fit.tensor_pj, fit.byte_pj
            print(
                f"{words}; tile {tile[0]} x {tile[1]}: tensor {pj:.2f} +- {sd:.2f} pJ/FLOP, byte {byte:.0f} pJ, "
                f"standing {watt:.0f} W; mean error of energy {fit.mape:.1f} %"
            )
            found.append((words, pj))
    return found


def tensor() -> None:
    values = [pj for _, pj in tensor_fits(read_runs(FACTS, A10))]
    print(f"least {min(values):.2f}, mean {sum(values) / len(values):.2f}, most {max(values):.2f} pJ/FLOP")


def scores(runs: list[Run], spec: dict) -> dict[str, list[float]]:
    """Errors of the simulated GPU of `spec`, lists.

    time, power, energy, curve (energy relative to that at the highest clock): percent of measured. clock: what runs at
    the cap reached, MHz. least: the clock of least energy, steps of the sweep.
    """
    workloads: dict[tuple, list[tuple[Run, State]]] = {}
    for run in runs:
        workloads.setdefault(run.workload, []).append((run, simulate(spec, run)))
    found: dict[str, list[float]] = {name: [] for name in ("time", "power", "energy", "curve", "clock", "least")}
    for pairs in workloads.values():
        pairs.sort(key=lambda pair: pair[0].core_mhz)
        measured = [run.energy_j for run, _ in pairs]
        simulated = [state.time_s * state.power_w for _, state in pairs]
        found["time"] += [_percent(state.time_s, run.time_s) for run, state in pairs]
        found["power"] += [_percent(state.power_w, run.power_w) for run, state in pairs]
        found["energy"] += [_percent(ours, theirs) for ours, theirs in zip(simulated, measured)]
        found["curve"] += [
            _percent(ours / simulated[-1], theirs / measured[-1]) for ours, theirs in zip(simulated, measured)
        ][:-1]
        held = [(run, state) for run, state in pairs if run.is_held or state.capped]
        found["clock"] += [state.core_mhz - run.reached_core_mhz for run, state in held]
        found["least"].append(float(simulated.index(min(simulated)) - measured.index(min(measured))))
    return found


def _percent(ours: float, theirs: float) -> float:
    return 100 * (ours / theirs - 1)


def _line(words: str, found: dict[str, list[float]]) -> str:
    def mean(name: str) -> float:
        return fmean(map(abs, found[name]))

    right = sum(step == 0 for step in found["least"])
    return (
        f"| {words} | {mean('time'):.1f} | {mean('power'):.1f} | {mean('energy'):.1f} | {mean('curve'):.1f} | "
        f"{mean('clock'):.0f} ({len(found['clock'])}) | {right} of {len(found['least'])} |"
    )


def a100() -> None:
    """The A100 PCIe before (the A100 SXM with 250 W), as shipped, and fitted without the model that is predicted.

    Runs in fp32 are of one model only, so those are never left out, nor scored there.
    """
    runs = read_runs(FACTS, A100)
    before = specs.resolve("a100_sxm", {"governor": {"cap_w": 250}})
    start = specs.resolve("a100_pcie", START)
    shipped = specs.resolve("a100_pcie")
    free = [run for run in runs if not run.is_held]
    print(f"{len(runs)} runs of {len({run.workload for run in runs})} workloads; mean absolute errors, percent; clock:")
    print(
        "MHz, over the runs that the cap held in one of both; least: workloads whose clock of least energy is right\n"
    )
    print("| simulated GPU | time | power | energy | energy over clocks | clock at the cap (runs) | least |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    print(_line("before: A100 SXM at 250 W", scores(runs, before)))
    print(_line("before, times of eager kernels fitted", scores(runs, fit_times(free, before))))
    print(_line("A100 PCIe as shipped, times fitted", scores(runs, fit_times(free, shipped))))
    bf16: dict[str, list[float]] = {}
    for model in ARCHITECTURES:
        kept = [run for run in runs if run.model != model or run.precision == "fp32"]
        moved = fit(kept, start)
        left = [run for run in runs if run.model == model and run.precision == "bf16"]
        for name, errors in scores(left, moved).items():
            bf16.setdefault(name, []).extend(errors)
    print(_line("A100 PCIe, fitted without the model predicted (bf16)", bf16))
    fitted = fit(runs, start)
    energy = fitted["energy_pj"]
    print(
        f"\nfitted: static {fitted['memory']['static_w']['1215']:.1f} W, clock tree "
        f"{fitted['core']['clock_w_per_ghz']:.1f} W/GHz, tensor {energy['tensor_bf16_flop']:.2f} pJ/FLOP, FP32 "
        f"{energy['fp32_flop']:.1f}, stream {energy['stream_byte']:.0f} pJ/B, SM cycle {energy['sm_cycle']:.0f} pJ, "
        f"DRAM {energy['dram_byte']:.0f} pJ/B"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tensor", "a100"))
    {"tensor": tensor, "a100": a100}[parser.parse_args().what]()


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
