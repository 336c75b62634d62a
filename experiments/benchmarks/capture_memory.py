"""How much of the GPU's memory, and how many seconds, does a capture take, beside the step alone?

The step runs ten times as calls, in a process of its own, then ten times as a CUDA graph of torch's, then it is
captured. The GPU's used memory is read every 5 ms. Goal: within 60 s, with no 14 GB more than its calls. Sets nothing
on the GPU.

    kernel-dvfs build --graph on
    python experiments/benchmarks/capture_memory.py       # the recurrent net, newer.py:gru
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOAL_S, GOAL_BYTE = 60, 14e9
CALLS = """
import sys, torch
sys.path.insert(0, "{folder}")
import newer
run = newer.{step}()
"""
GRAPH = """
with torch.cuda.stream(torch.cuda.Stream()):
    for _ in range(3): run()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph): run()
run = graph.replay
"""
TEN = """
for _ in range(10): run()
torch.cuda.synchronize()
"""


class PeakMemory(threading.Thread):
    """The most bytes of the GPU's memory in use, above those at its start, by all processes."""

    def __init__(self):
        super().__init__(daemon=True)
        self.before_byte = self.peak_byte = self.used_byte()
        self.ended = threading.Event()

    @staticmethod
    def used_byte():
        import torch

        free_byte, total_byte = torch.cuda.mem_get_info()
        return total_byte - free_byte

    def run(self):
        while not self.ended.wait(0.005):
            self.peak_byte = max(self.peak_byte, self.used_byte())

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def taken(name, words):
    """Print and return seconds and peak bytes of a command; the process ends with its output where it fails."""
    with PeakMemory() as memory:
        began_s = time.monotonic()
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        seconds = time.monotonic() - began_s
    if done.returncode:
        sys.exit(f"{name}: exit code {done.returncode}\n{done.stdout}")
    byte = memory.peak_byte - memory.before_byte
    print(f"{name}: {byte / 2**30:.2f} GiB at most, {seconds:.1f} s", flush=True)
    time.sleep(2)  # the driver takes the memory back
    return seconds, byte


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", default="gru", help="a function of own_steps/newer.py (default: gru)")
    step = parser.parse_args().step
    calls = CALLS.format(folder=HERE / "own_steps", step=step)
    _, calls_byte = taken("as calls", [sys.executable, "-c", calls + TEN])
    _, graph_byte = taken("as a graph", [sys.executable, "-c", calls + GRAPH + TEN])
    with tempfile.TemporaryDirectory() as folder:
        source, output = f"{HERE / 'own_steps' / 'newer.py'}:{step}", str(Path(folder) / "step.json")
        words = [sys.executable, "-m", "kernel_dvfs", "capture", source, "-o", output]
        seconds, byte = taken("captured", words)
    more = [f"{(byte - other) / 2**30:.2f}" for other in (calls_byte, graph_byte)]
    is_good = seconds <= GOAL_S and byte - calls_byte <= GOAL_BYTE
    print(f"the capture takes {more[0]} GiB more than the calls, {more[1]} GiB more than the graph: ", end="")
    print(f"{'within' if is_good else 'NOT within'} {GOAL_S} s and {GOAL_BYTE / 1e9:g} GB more than the calls")


if __name__ == "__main__":
    main()
