"""What products of all sizes take and draw on a real H200 at its own clocks, each watched for whole seconds.

    python experiments/benchmarks/gpu_products.py -o experiments/results/gpu_products_h200.csv

A public table of such products watches short ones for a tenth of a second, so that its power says how long it looked
(experiments/calibration/products.py). Here a CUDA graph of a product on random bf16 operands is replayed for WATCHED_S,
between two edges of the board's energy counter. Sets nothing; reads NVML through ctypes, so that it runs where only
PyTorch is.

Columns: m, n, k; time_us of a product; power_w, mean; sm_mhz, median of what the driver reported; capped, share of
those readings at which the power cap held the clock.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import os
import statistics
import sys
import threading
import time

WARM_S, WATCHED_S = 1.0, 3.0
FLAT = 8  # products in a graph, at least; more where they are short
POWER_CAP = 0x4
# (m, n, k), four classes of FLOP from 1e9 on, narrow and square ones
SHAPES = (
    (64, 4096, 2048),
    (256, 2048, 1024),
    (128, 8192, 2048),
    (1024, 1024, 1024),
    (512, 4096, 1024),
    (64, 16384, 4096),
    (256, 8192, 4096),
    (1024, 4096, 4096),
    (2048, 2048, 4096),
    (4096, 4096, 1024),
    (128, 28672, 8192),
    (1024, 8192, 8192),
    (4096, 4096, 4096),
    (2048, 16384, 4096),
    (8192, 8192, 4096),
    (8192, 8192, 8192),
    (16384, 8192, 8192),
)


class Board:
    """The first GPU, read through NVML."""

    def __init__(self) -> None:
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._handle = ctypes.c_void_p()
        for call in (
            self._nvml.nvmlInit_v2(),
            self._nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._handle)),
        ):
            if call:
                raise RuntimeError(f"NVML refused with code {call}")

    def _read(self, name: str, kind: type = ctypes.c_ulonglong, *more: int) -> int:
        found = kind()
        code = getattr(self._nvml, name)(self._handle, *more, ctypes.byref(found))
        if code:
            raise RuntimeError(f"{name}: NVML code {code}")
        return int(found.value)

    def energy_mj(self) -> int:
        """Return the energy counter."""
        return self._read("nvmlDeviceGetTotalEnergyConsumption")

    def sm_mhz(self) -> int:
        """Return the clock of the SMs."""
        return self._read("nvmlDeviceGetClockInfo", ctypes.c_uint, 1)

    def is_capped(self) -> bool:
        """Return whether the power cap holds the clock."""
        return bool(self._read("nvmlDeviceGetCurrentClocksEventReasons") & POWER_CAP)

    def name(self) -> str:
        """Return the board's name."""
        text = ctypes.create_string_buffer(96)
        self._nvml.nvmlDeviceGetName(self._handle, text, 96)
        return text.value.decode()

    def edge(self) -> tuple[float, int]:
        """Wait until the energy counter moves; return (s, mJ) then."""
        before = self.energy_mj()
        while (now := self.energy_mj()) == before:
            pass
        return time.perf_counter(), now


def measured(board: Board, shape: tuple[int, int, int]) -> dict[str, float]:
    """Return the row of a product."""
    import torch

    m, n, k = shape
    a, b = (torch.randn(size, device="cuda", dtype=torch.bfloat16) for size in ((m, k), (k, n)))
    out = torch.empty((m, n), device="cuda", dtype=torch.bfloat16)
    torch.matmul(a, b, out=out)
    torch.cuda.synchronize()
    count = max(FLAT, int(2e11 / (2 * m * n * k)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            torch.matmul(a, b, out=out)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stop, replays = threading.Event(), 0

    def feed() -> None:
        """Replay until told to stop: a queue that is full holds up who fills it."""
        nonlocal replays
        start.record(stream)
        while not stop.is_set():
            with torch.cuda.stream(stream):
                graph.replay()
            replays += 1
        end.record(stream)

    stream = torch.cuda.Stream()
    feeder = threading.Thread(target=feed)
    feeder.start()
    time.sleep(WARM_S)
    (began, first), clocks, caps = board.edge(), [], []
    while time.perf_counter() - began < WATCHED_S:
        clocks.append(board.sm_mhz())
        caps.append(board.is_capped())
        time.sleep(0.02)
    ended, last = board.edge()
    stop.set()
    feeder.join()
    torch.cuda.synchronize()
    return {
        **dict(zip("mnk", shape)),
        "time_us": round(1e3 * start.elapsed_time(end) / replays / count, 3),
        "power_w": round((last - first) / 1000 / (ended - began), 2),
        "sm_mhz": statistics.median(clocks),
        "capped": round(sum(caps) / len(caps), 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    board = Board()
    rows = []
    for shape in SHAPES:
        rows.append(measured(board, shape) | {"device": board.name()})
        print(rows[-1], flush=True)
    with open(f"{options.output}.part", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(f"{options.output}.part", options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
