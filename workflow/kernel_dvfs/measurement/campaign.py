"""Campaigns: what is measured in one go under one name, on a GPU of a setup.

`sweep` finds, `remeasure-<number>` looks again, `fresh-<repeat>` judges; each campaign draws its own noise and offsets
on a simulated GPU, as another day would on a real one.
"""

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import BASELINE
from kernel_dvfs.gpu.noise import Key
from kernel_dvfs.measurement.point import condition, measure
from kernel_dvfs.measurement.target import Target

SWEEP = "sweep"


def repeats(pair, auto_repeats: int) -> int:
    """How often a sweep measures a pair: the baseline often, everything else once."""
    return auto_repeats if pair == BASELINE else 1


def of_repeat(pair, repeat: int, auto_repeats: int) -> str:
    """The campaign of a record by its number alone, so that a record is the same whoever asked for it, and when.

    Measured again once a round (the default), the number is that of the rounds that asked for the pair.
    """
    again = repeat - repeats(pair, auto_repeats)
    return SWEEP if again < 0 else f"remeasure-{1 + again}"


def open_bench(setup, path: str, target: Target):
    """What measures a target on the GPU of a setup: device, run, kernel for the record, point(), compare().

    path: of the setup's file. Raises InputError for a kind of GPU that cannot measure.
    """
    kind = setup.gpu["kind"]
    if kind == "simulated":
        return Bench(setup, target)
    if kind == "nvml":
        from kernel_dvfs.measurement.real.client import RemoteBench

        return RemoteBench(setup, path, target)
    raise InputError(f"gpu kind '{kind}' cannot measure; configure a simulated GPU by name, or nvml")


class Bench:
    """A simulated GPU conditioned for one target: each point starts from the same hot board."""

    # of a real board only: records of a simulated one are the same bytes each time
    run = kernel = {}  # noqa: RUF012 - never written

    def __init__(self, setup, target: Target, exact: bool = False):
        from kernel_dvfs.gpu.simulated import SimulatedGpu

        self.setup = setup
        self.target = target
        self._hot = SimulatedGpu(setup.gpu["spec"], setup.measurement["seed"], exact)
        self._load = self._hot.prepare(setup, target)
        condition(self._hot, self._load, ("condition",))

    @property
    def device(self) -> dict:
        return self._hot.device()

    def point(self, pair, campaign: str = SWEEP, repeat: int = 0) -> dict:
        """One point, on the hot board."""
        key = Key(campaign, self.setup.workload["name"], f"{self.target.study}/{self.target.name}", repeat)
        return measure(self._hot.copy(), self._load, pair, self.setup.measurement, key)

    def compare(self, pair, repeat: int) -> dict:
        """Auto, chosen, chosen, auto: one fresh repeat, whose own campaign nothing was chosen from."""
        points = [
            self.point(clocks, f"fresh-{repeat}", number)
            for number, clocks in enumerate((BASELINE, pair, pair, BASELINE))
        ]
        for point in points:
            del point["windows"]  # a comparison keeps the summaries
        return {"target": self.target.name, "repeat": repeat, "points": points}
