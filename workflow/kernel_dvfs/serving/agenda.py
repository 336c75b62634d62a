"""What happens when: calls on a virtual clock, by SimPy.

Plain callbacks on its timeouts: a process (a generator) per event took 1.5 times as long, and a bare heap saved a
seventh (benchmarks/serving_event_loop.py), too little to go without the library.
"""

import simpy


class Agenda:
    """Calls in order of time, those of the same moment in the order they were asked for."""

    def __init__(self):
        self._environment = simpy.Environment()
        self._timeout = self._environment.timeout

    @property
    def now_s(self) -> float:
        """The moment, s."""
        return self._environment.now

    def at(self, moment_s: float, call, *arguments) -> None:
        """Call `call(*arguments)` at `moment_s`, now if that has passed."""
        delay_s = moment_s - self._environment.now
        self._timeout(delay_s if delay_s > 0 else 0).callbacks.append(lambda _: call(*arguments))

    def run(self) -> None:
        """Until nothing is left."""
        self._environment.run()
