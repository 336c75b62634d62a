"""A process that plays an iteration schedule on a board of the fake NVML, as told in JSON; prints what came of it.

Told: schedule, setup (paths), iterations, seed of the jitter; latency_s, jitter, stall_s ([core, mem]: how long the
launches stand still as a clock changes) of the board; happens: {seconds: what};
source: more of SimulatedIteration; auto: play nothing; dry: only look; expects: none.
"""

import json
import os
import signal
import sys
from dataclasses import astuple

from simulated_iteration import SimulatedIteration

from kernel_dvfs.gpu.noise import uniform
from kernel_dvfs.measurement.real.loads import open_loads
from kernel_dvfs.measurement.setup import read
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.guard import Guard
from kernel_dvfs_clocks.nvml.facts import facts, slug
from kernel_dvfs_clocks.nvml.library import Library
from kernel_dvfs_deploy.control import Control
from kernel_dvfs_deploy.player import Player
from kernel_dvfs_deploy.sequence.schedule import read_iteration


def main(told: dict) -> dict:
    dry = told.get("dry", False)
    with Guard(told["uuid"], mode="auto-only" if dry else "lock") as guard:
        about = facts(guard.nvml, guard.board)
        about["slug"] = slug(about)
        fake, state = guard.nvml.shared_library, os.environ["FAKENVML_STATE"].encode()

        def turn(knob, value):
            assert fake.fakenvml_set(state, 0, knob.encode(), str(value).encode()) == 0

        class Board(Control):
            """Whose changes take as long as told, each a little else."""

            def ask(self, pair):
                number, before = self.asked, self.pair
                late = told.get("jitter", 0) * (2 * uniform(told.get("seed", 1), "switch jitter", number) - 1)
                for domain in ("core", "mem"):
                    turn(f"{domain}_lag_ms", 1000 * told["latency_s"] * (1 + late))
                super().ask(pair)
                stall_s = sum(own for own, old, new in zip(told.get("stall_s", ()), before, pair) if old != new)
                if stall_s and number:  # at the first one nothing of the iteration has run
                    source.stalls.append([source.now_s() + told["latency_s"] * (1 + late), stall_s])

        what = {
            "foreign lock": lambda: (turn("core_lag_ms", 0), guard.board.lock_core(210, 630)),
            "heat": lambda: turn("forced_c", 95),
            "no rights": lambda: turn("fail", "nvmlDeviceSetGpuLockedClocks:4"),
            "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
        }
        iteration = read_iteration(told["schedule"])
        control = Board(guard, about, reads_only=dry)
        loads = open_loads(guard.nvml, told["uuid"])
        happens = {float(second): what[name] for second, name in told.get("happens", {}).items()}
        source = SimulatedIteration(loads, read(told["setup"]), iteration.names, happens, **told.get("source", {}))
        begin_j = energy_j(fake, state)
        log = None
        if not told.get("auto"):
            log = Player(iteration, control, source, about=about).play(told["iterations"])
        else:
            source.run_iterations(told["iterations"])
        return {
            "time_s": source.now_s() - source.begin_s,
            "energy_j": energy_j(fake, state) - begin_j,
            "log": log and [[astuple(each) for each in log.asked], log.surprise, log.finished],
        }


def energy_j(fake, state) -> float:
    import ctypes

    text = ctypes.create_string_buffer(64)
    assert fake.fakenvml_get(state, 0, b"energy_mj", text, ctypes.c_size_t(64)) == 0
    return float(text.value) / 1000


if __name__ == "__main__":
    assert hasattr(Library().__enter__().shared_library, "fakenvml_now") if os.environ.get("CHECK") else True
    try:
        print(json.dumps(main(json.loads(sys.argv[1]))))
    except InputError as error:
        sys.exit(f"error: {error}")
