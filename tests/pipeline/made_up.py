"""Stage profiles and graphs made up for tests: physics in outline, no measured number."""

import numpy as np

from kernel_dvfs_pipeline.graph import Graph, Operation
from kernel_dvfs_pipeline.stage_profile import InstructionSettings, StageProfile

BLOCKING_W = 80.0


def settings(core_mhz, time_s, energy_j) -> InstructionSettings:
    core = np.asarray(core_mhz, float)
    nothing = np.full(len(core), np.nan)
    return InstructionSettings(
        core, nothing, np.asarray(time_s, float), np.asarray(energy_j, float), ["made up"] * len(core)
    )


def curved(work_s, watt, clocks_mhz, seed) -> InstructionSettings:
    """t falls with the clock, power rises with its cube; a little noise, so that not every option is on the hull."""
    rng = np.random.default_rng(seed)
    share = np.asarray(clocks_mhz) / max(clocks_mhz)
    time_s = work_s * (0.2 + 0.8 / share) * np.exp(0.002 * rng.normal(size=len(share)))
    energy_j = time_s * (100 + watt * share**3) * np.exp(0.004 * rng.normal(size=len(share)))
    return settings(clocks_mhz, time_s, energy_j)


def profile(stages, clocks=12, seed=1, instructions=("forward", "backward")) -> StageProfile:
    """Stages of different size; a backward pass takes about twice a forward pass."""
    rng = np.random.default_rng(seed)
    mhz = np.linspace(700, 1400, clocks).round()
    made = {}
    for stage in range(stages):
        size = rng.uniform(0.04, 0.06)
        for number, instruction in enumerate(instructions):
            made[stage, instruction] = curved(size * (1 + number), 300, mhz, seed + 10 * stage + number)
    return StageProfile(made, "made-up profile")


def few_clocks(stages) -> StageProfile:
    """A GPU at its power limit: the upper clocks take nearly the same time, below them a few useful ones are far apart,
    and those between lie well above the line from one to the next."""
    time_s = np.array([1.0, 1.001, 1.004, 1.012, 1.03, 1.05, 1.07, 1.095, 1.12, 1.3])
    energy_j = np.array([1.0, 0.985, 0.95, 0.92, 0.885, 0.86, 0.845, 0.735, 0.73, 0.725])
    made = {}
    for stage in range(stages):
        # the last stage has the logits as well
        size = 0.058 if stage == stages - 1 else 0.055
        for factor, instruction in ((1, "forward"), (2.4, "backward")):
            own_s = size * factor * time_s
            made[stage, instruction] = settings(np.arange(1740, 1740 - 60 * 10, -60), own_s, 300 * own_s[0] * energy_j)
    return StageProfile(made, "invented profile of few useful clocks")


def random_case(rng, operations, clocks):
    """(Graph, StageProfile) of a random graph in which every operation has options of its own."""
    edges = [(i, j, float(rng.choice([0.0, 0.01]))) for j in range(operations) for i in range(j) if rng.random() < 0.4]
    graph = Graph([Operation(0, number, "forward", 0) for number in range(operations)], edges, stages=1)
    made = {
        (number, "forward"): settings(range(1, clocks + 1), rng.uniform(0.1, 1, clocks), rng.uniform(50, 150, clocks))
        for number in range(operations)
    }
    return graph, StageProfile(made, "random profile")
