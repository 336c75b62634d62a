"""What whole forward passes, measured by others, say of tensor cores and of the simulated A100.

    python benchmarks/forward_passes.py tensor     # energy of a tensor-core FLOP on a GA102 (A10)
    python benchmarks/forward_passes.py a100       # the simulated A100 40 GB PCIe against 15 workloads at 11 clocks

Facts: benchmarks/data/energaizer_forward_passes.csv (MIT). Nothing is fitted to a single workload.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "workflow"))

from kernel_dvfs.calibration.forward_passes import Run, energies, read_runs
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.workload.traffic import Cache, gemm_byte

FACTS = Path(__file__).parent / "data" / "energaizer_forward_passes.csv"
A10 = "A10"  # GA102 like the RTX 3080 Ti: 72 SMs, GDDR6, 150 W; all runs at 900 MHz, at or near the voltage's floor
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tensor",))
    {"tensor": tensor}[parser.parse_args().what]()


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
