"""Does the probe of the core clock raise a false alarm on a real GPU at its default clocks?

    PYTHONPATH=workflow python3 experiments/benchmarks/auto_probe.py -o auto_probe.csv

Runs the probe of a session (measurement.real.clock_probe) 20 times on the first GPU, each in a process of its own,
after idling, back to back, and, where torch is there, straight after seconds of large matrix products, which bring the
board to its power limit and heat it. Only looks: no clock is set. Needs the driver and nvidia-ml-py. A row for each
probe: the clock that it saw, the top clock, the verdict, NVML's clock, temperature and power just before.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path

from kernel_dvfs.measurement.real import clock_probe
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml.board import Board, uuids
from kernel_dvfs_clocks.nvml.facts import facts
from kernel_dvfs_clocks.nvml.library import Library

PROBES = 20
HEAVY_S, IDLE_S = 3.0, 1.5


def heavy() -> Callable[[], None] | None:
    """What runs large matrix products for HEAVY_S; None where there is no torch that sees the GPU."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def run() -> None:
        end_s = time.monotonic() + HEAVY_S
        while time.monotonic() < end_s:
            for _ in range(20):
                left @ right
            torch.cuda.synchronize()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.csv")
    parser.add_argument("--probes", type=int, default=PROBES)
    options = parser.parse_args()
    load = heavy()
    print("with a heavy load by torch before every other probe" if load else "no torch here: no heavy load before any")
    rows = []
    with Library() as nvml:
        board = Board(nvml, uuids(nvml)[0])
        about = facts(nvml, board)
        top_mhz = clock_probe.top_mhz(about["clocks"])
        if not top_mhz:
            raise InputError("the driver lists no clocks of this GPU, so nothing says what its top is")
        for number in range(options.probes):
            before = ("heavy" if load else "idle") if number % 2 else ("idle" if number % 4 else "back to back")
            if before == "heavy" and load:
                load()
            elif before == "idle":
                time.sleep(IDLE_S)
            power_mw = board.power_mw() or 0
            state = {"nvml_mhz": board.sm_mhz(), "temperature_c": board.temperature_c(), "power_w": power_mw / 1000}
            began_s = time.monotonic()
            core_mhz = clock_probe.probe_apart(board.uuid, top_mhz)
            took_s = time.monotonic() - began_s
            held = clock_probe.held({"core_mhz": core_mhz, "top_mhz": top_mhz}, about["compute_capability"])
            row = {"gpu": about["name"], "driver": about["driver"], "number": number, "before": before} | state
            row |= {"probe_mhz": core_mhz, "top_mhz": top_mhz, "share": round(core_mhz / top_mhz, 5)}
            rows.append(row | {"verdict": "not_free" if held else "free", "took_s": round(took_s, 2)})
            print(*(f"{name} {value}" for name, value in rows[-1].items()), sep=", ", flush=True)
    output = Path(options.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with open(output, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    alarms = sum(row["verdict"] != "free" for row in rows)
    least = min(row["share"] for row in rows)
    print(f"{about['name']}: {alarms} false alarms in {len(rows)} probes; the lowest: {100 * least:.2f} % of the top")


if __name__ == "__main__":
    main()
