"""A process that plays a schedule on a captured step on a board of the fake NVML, as told in JSON; prints what came.

Told: step, schedule, setup (paths); steps to run; settings of play; slower, forgets: of SimulatedStep; die: kill itself
that many steps in; lose: kill the process that holds the clocks, likewise.
"""

import json
import os
import signal
import sys

from simulated_step import SimulatedStep

from kernel_dvfs.measurement.real.loads import open_loads
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.workload.step import read as read_step
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml.library import Library
from kernel_dvfs_deploy import play, player, playing

# a loaded machine may wake a thread later than any GPU would be late; what comes of lateness is test_player.py's
PATIENCE_S = 10.0


def patient(late_s: float, duration_share: float = 0.2) -> player.Tolerance:
    return player.Tolerance(max(late_s, PATIENCE_S), duration_share)


def main(told: dict) -> dict:
    playing.Tolerance = patient
    # a user's own process: NVML and CUDA are open before anything is played
    with Library() as nvml:
        record = read_step(told["step"])
        loads = open_loads(nvml, record.device["uuid"])
        step = SimulatedStep(loads, read(told["setup"]), record, told.get("slower", 100.0), told.get("forgets", False))
        said = []
        before = step.fingerprint()
        with play(step, told["schedule"], say=said.append, **told.get("settings", {})) as run:
            restored = step.fingerprint() == before
            step.ran.clear()
            for number in range(told.get("steps", 3)):
                run()
                if number == told.get("die"):
                    step.synchronize()
                    os.kill(os.getpid(), signal.SIGKILL)
                if number == told.get("lose"):
                    step.synchronize()
                    os.kill(run._control._guard.holder.pid, signal.SIGKILL)
            step.synchronize()
            waiting = len(run._player.events._waiting) if run._player else 0
        ran = list(step.ran)
        certificate = run.certificate
        return {
            "ran": ran,
            "said": said,
            "restored": restored,
            "waiting": waiting,
            "copy_kept": step.saved is not None,
            "log": run.log and [len(run.log.asked), run.log.surprise, run.log.finished],
            "certificate": certificate
            and {
                "holds": certificate.holds,
                "why": certificate.why,
                "same_bits": certificate.same_bits,
                "pieces": certificate.pieces,
                "changes": certificate.changes,
                "energy": certificate.energy.mean,
                "time": certificate.time.mean,
                "said": str(certificate),
            },
        }


if __name__ == "__main__":
    try:
        print(json.dumps(main(json.loads(sys.argv[1]))))
    except InputError as error:
        sys.exit(f"error: {error}")
