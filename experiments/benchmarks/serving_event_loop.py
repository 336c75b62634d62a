"""Does SimPy cost the serving simulation much? The same run on SimPy's callbacks, on its processes, and on a bare heap.

    python experiments/benchmarks/serving_event_loop.py profile.csv [--trace trace.csv]

profile.csv: made by `kernel-dvfs serving profile`. Prints CPU seconds (least of three) and ratios to the callbacks,
which is how the simulation uses SimPy; all three must give the same energy to the last digit but rounding.
"""

import argparse
import os
import sys
import time
from heapq import heappop, heappush

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

import simpy

from kernel_dvfs_serving import cluster
from kernel_dvfs_serving.cluster import Agenda
from kernel_dvfs_serving.machine import SimulatedMachine
from kernel_dvfs_serving.profile import read_profile
from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.system import Settings
from kernel_dvfs_serving.trace import SYNTHETIC_HOUR, read_trace


class Processes:
    """A SimPy process for every call."""

    def __init__(self):
        self._environment = simpy.Environment()

    @property
    def now_s(self):
        return self._environment.now

    def at(self, moment_s, call, *arguments):
        self._environment.process(self._wait(max(0.0, moment_s - self.now_s), call, arguments))

    def _wait(self, delay_s, call, arguments):
        yield self._environment.timeout(delay_s)
        call(*arguments)

    def run(self):
        self._environment.run()


class Heap:
    """heapq and a loop."""

    def __init__(self):
        self.now_s, self._heap, self._asked = 0.0, [], 0

    def at(self, moment_s, call, *arguments):
        self._asked += 1
        heappush(self._heap, (max(moment_s, self.now_s), self._asked, call, arguments))

    def run(self):
        while self._heap:
            self.now_s, _, call, arguments = heappop(self._heap)
            call(*arguments)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile")
    parser.add_argument("--trace", default=SYNTHETIC_HOUR)
    options = parser.parse_args()
    replayer, trace = Replayer(SimulatedMachine(), read_profile(options.profile)), read_trace(options.trace)
    for system in ("SinglePool", "DynamoLLM"):
        times, energies = {}, {}
        for name, loop in (("callbacks", Agenda), ("processes", Processes), ("heap", Heap)):
            cluster.Agenda = loop
            for _ in range(3):
                begun = time.process_time()
                done = replayer.run(trace, system, Settings())
                times[name] = min(times.get(name, float("inf")), time.process_time() - begun)
            energies[name] = sum(done.accounts.energy_j.values())
        ratios = ", ".join(f"{name} {own:.2f} s ({own / times['callbacks']:.2f})" for name, own in times.items())
        spread = max(energies.values()) / min(energies.values()) - 1
        print(f"{system}: {ratios}; energies differ by {spread:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
