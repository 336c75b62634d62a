"""A training iteration on a board of the fake NVML, on virtual time: a source of events for deploy.player.

Time passes only while somebody waits or sleeps; then launches run at the clocks that the board really has, and the
board is told each one's power. What is to happen meanwhile is given as {seconds from the begin: function}.
"""

from kernel_dvfs.measurement.target import MeasurementTarget

_SLICE_S = 0.0003


class SimulatedIteration:
    """loads: simulated_load.SimulatedLoads. names: kernel ids in order of launch. happens: see above. slower: factor of
    all times. oversleep_s: how much later than asked a sleeper wakes. ends_s: when the launching program stops."""

    def __init__(self, loads, setup, names, happens=None, slower=1.0, oversleep_s=0.0, ends_s=float("inf")):
        kernels = {name: loads.prepare(setup, MeasurementTarget("kernel", name)) for name in set(names)}
        self._loads, self._names = loads, [kernels[name] for name in names]
        self._tables = {}
        self._happens = sorted((happens or {}).items())
        self._slower, self._oversleep_s, self._ends_s = slower, oversleep_s, ends_s
        self.begin_s = loads.now_s()
        self._boundary, self._done = 0, 0.0
        self._passed = {0: self.begin_s}
        self.stalls = []  # [when s, for how long s], ascending: the launches stand still, at the least power of any
        self._show()

    def now_s(self) -> float:
        return self._loads.now_s()

    def sleep_until(self, when_s: float) -> None:
        if when_s > self.now_s():
            self._run(lambda now_s: now_s >= when_s + self._oversleep_s, when_s + self._oversleep_s)

    def passed_s(self, boundary: int):
        return self._passed.get(boundary)

    def wait(self, boundary: int, until_s: float):
        self._run(lambda now_s: boundary in self._passed or now_s >= until_s, until_s)
        return self._passed.get(boundary)

    def is_idle(self) -> bool:
        return False

    def run_iterations(self, count: int) -> None:
        """To the end of so many iterations from the begin."""
        self.wait(count * len(self._names), float("inf"))

    def _show(self) -> None:
        self._loads.run(self._table(self._names[self._boundary % len(self._names)]))

    def _table(self, load):
        if load.name not in self._tables:
            loads = self._loads
            self._tables[load.name] = [[load.power_w(c, m) for c in loads.core_mhz] for m in loads.mem_mhz]
        return self._tables[load.name]

    def _stand_still(self, for_s: float) -> None:
        tables = [self._table(load) for load in set(self._names)]
        self._loads.run([[min(powers) for powers in zip(*rows)] for rows in zip(*tables)])
        self._loads.sleep(for_s)
        self._show()

    def _run(self, is_over, until_s: float) -> None:
        now_s, cycles, _, mem = self._loads.now()
        while not is_over(now_s):
            while self._happens and now_s - self.begin_s >= self._happens[0][0]:
                self._happens.pop(0)[1]()
            if self.stalls and now_s >= self.stalls[0][0] - 1e-9:
                self._stand_still(self.stalls.pop(0)[1])
                now_s, cycles, _, mem = self._loads.now()
                continue
            until_stall_s = self.stalls[0][0] - now_s if self.stalls else _SLICE_S
            stopped = now_s - self.begin_s >= self._ends_s
            load = self._names[self._boundary % len(self._names)]
            _, _, core, mem = self._loads.now()
            left_s = (1 - self._done) * load.time_s(core, mem) * self._slower
            step_s = min(_SLICE_S, until_stall_s, max(until_s - now_s, 1e-6), _SLICE_S if stopped else left_s)
            self._loads.sleep(step_s)
            before_s, before = now_s, cycles
            now_s, cycles, _, mem = self._loads.now()
            if stopped:
                continue
            mhz = (cycles - before) / (now_s - before_s)
            self._done += (now_s - before_s) / (load.time_s(mhz, mem) * self._slower)
            if self._done >= 1 - 1e-9:
                self._boundary, self._done = self._boundary + 1, 0.0
                self._passed[self._boundary] = now_s
                self._show()
