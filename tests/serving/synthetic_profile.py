"""A small made-up machine and profile: an instance whose step is a straight line, quick to simulate."""

from math import sqrt

import numpy as np

from kernel_dvfs_serving.make_profile import PoissonArrivals, curve
from kernel_dvfs_serving.profile import LATENCIES, LoadCurve, ServingProfile
from kernel_dvfs_serving.requests import CLASSES

CLOCKS = {"800": 0.55, "1400": 0.8, "1980": 1.0}  # speed
KV_TOKENS = {2: 40_000, 4: 300_000, 8: 900_000}
# four servers with short epochs, so that a quarter of an hour sees every decision
QUICK = {"servers": 4, "cluster_epoch_s": 300.0, "pool_epoch_s": 100.0, "start_s": 60.0, "load_slot_s": 60.0}
QUICK["load_prediction"] = "oracle"  # the controllers are tried, not the forecast


class LineEngine:
    """step time = (fixed + tokens / rate + context * touch) / speed; power rises with the cube of speed."""

    def __init__(self, tp: int, clock: str):
        speed = CLOCKS[clock]
        self.fixed_s, self.token_s, self.context_s = 0.012 / speed, 4e-4 / tp / speed, 2e-8 / tp
        self.busy_w = tp * (150 + 400 * speed**3)
        self.idle_w = self.least_w = tp * (80 + 40 * speed)

    def step(self, new_tokens, prompt_pairs, context_tokens, sequences=0):
        time_s = self.fixed_s + self.token_s * new_tokens + 1e-10 * prompt_pairs + self.context_s * context_tokens
        return time_s, time_s * self.busy_w

    def least_j(self, floor_w, most_tokens):
        more_w = self.busy_w - floor_w
        return more_w * (self.token_s + self.fixed_s / most_tokens), more_w * 1e-10, more_w * self.context_s

    def run(self, batch, context_tokens, steps):
        first_s = self.fixed_s + self.token_s * batch + self.context_s * context_tokens
        time_s = steps * first_s + self.context_s * batch * steps * (steps - 1) / 2
        return time_s, time_s * self.busy_w

    def steps_within(self, batch, context_tokens, seconds):
        first_s = self.fixed_s + self.token_s * batch + self.context_s * context_tokens
        half = self.context_s * batch / 2
        steps = int((-(first_s - half) + sqrt((first_s - half) ** 2 + 4 * half * seconds)) / (2 * half))
        while steps and self.run(batch, context_tokens, steps)[0] > seconds:
            steps -= 1
        return steps


class LineMachine:
    """As machine.Machine, of LineEngines."""

    parked_w = 70.0
    kv_byte_per_token = 327_680

    def __init__(self):
        self._engines = {}

    def engine(self, tp, clock):
        return self._engines.setdefault((tp, clock), LineEngine(tp, clock))

    def kv_tokens(self, tp):
        return KV_TOKENS[tp]

    def caps_w(self, shares):
        return []


def line_profile(requests: int = 150) -> ServingProfile:
    """The profile of that machine, simulated as the real one's is."""
    curves, machine = {}, LineMachine()
    for class_ in CLASSES:
        load = PoissonArrivals.draw(class_, requests)
        for tp in KV_TOKENS:
            for clock in CLOCKS:
                points = curve(machine.engine(tp, clock), KV_TOKENS[tp], class_, load)
                names = ("power_w", *LATENCIES)
                values = {name: np.array([getattr(point, name) for point in points.values()]) for name in names}
                curves[class_, tp, clock] = LoadCurve(f"{class_} {tp} {clock}", np.array(list(points)), **values)
    return ServingProfile("line", "line", curves, {"simulated"}, "line profile")
