"""A session: one GPU taken, checked and kept warm, and points measured on it until it ends."""

import hashlib
import os
import socket
import time

from kernel_dvfs import __version__
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import compact_json
from kernel_dvfs.gpu.clocks import BASELINE
from kernel_dvfs.gpu.noise import Key
from kernel_dvfs.gpu.nvml import lease
from kernel_dvfs.gpu.nvml.guard import Guard
from kernel_dvfs.measurement.point import measure
from kernel_dvfs.measurement.probes import hottest
from kernel_dvfs.measurement.real import estimate, preflight
from kernel_dvfs.measurement.real import loads as kernels
from kernel_dvfs.measurement.real.gpu import RealGpu
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import Target

# settings that hold for a whole session; the others may differ from point to point
_OF_SESSION = ("clocks", "lock", "after", "share", "temperature", "band_c")


def identity(setup) -> str:
    """What a session must have in common with a request: another identity needs another session."""
    try:
        library = kernels.library_sha256()
    except InputError:
        library = "none"  # whoever opens it says so
    settings = {key: setup.measurement[key] for key in _OF_SESSION}
    text = compact_json([setup.gpu["uuid"], settings, library, __version__])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Session:
    """with Session(setup, say, is_wanted) as session: session.point(...). To be entered before NVML is opened.

    say: called with a line for the user; is_wanted: () -> whether the point being measured is still wanted.
    Raises InputError where the GPU is taken, unfit or not ours to set; locks.NotRestored on leaving.
    """

    def __init__(self, setup, say, is_wanted=lambda: True):
        self._setup, self._say, self._is_wanted = setup, say, is_wanted
        settings = setup.measurement
        self.identity = identity(setup)
        self._guard = Guard(setup.gpu["uuid"], settings["after"], settings["clocks"], say)
        self._points = 0
        self._gpu = None

    def __enter__(self) -> "Session":
        self._guard.__enter__()
        try:
            self._open()
        except BaseException as error:
            self._guard.__exit__(type(error), error, error.__traceback__)
            raise
        self._id = f"{lease.boot_id()[:8]}-{os.getpid()}-{lease.process_start(os.getpid())}"
        return self

    def _open(self) -> None:
        setup, board = self._setup, self._guard.board
        settings = setup.measurement
        preflight.check_board(board, settings["share"], self._say)
        before = board.compute_processes()
        loads = kernels.open_loads(self._guard.nvml, setup.gpu["uuid"])
        now = board.compute_processes()
        own = None if before is None or now is None else now - before
        counter = preflight.check_counter(board, loads.now_s, loads.sleep, settings["window_s"])
        # last: what refuses before it has changed nothing
        if settings["clocks"] == "lock":
            self._guard.announce("a probe of all clocks")
            preflight.check_permission(self._guard, setup.gpu["clocks"])
        self._gpu = RealGpu(self._guard, setup.gpu, settings, loads, counter, own, self._is_wanted)

    def __exit__(self, kind, error, trace) -> None:
        try:
            if self._gpu:
                self._gpu.stop()
        finally:
            self._guard.__exit__(kind, error, trace)

    @property
    def device(self) -> dict:
        return self._gpu.device()

    def rest(self) -> None:
        """Nobody asks for anything: leave no clock locked meanwhile."""
        self._gpu.release()

    def point(self, setup, target: Target, pair, campaign: str, repeat: int) -> tuple:
        """(the point, more of the record's `run` and of its `kernel` group). A disturbed one is measured once more."""
        preflight.check_window(
            setup.gpu["uuid"], self.device["counter_period_ms"] / 1000, setup.measurement["window_s"]
        )
        key = Key(campaign, setup.workload["name"], f"{target.study}/{target.name}", repeat)
        self._gpu.account.take()  # since the last point nobody asked for anything
        started_utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        point, load = self._measure(setup, target, pair, key)
        if point["verdict"] == "disturbed":
            point, load = self._measure(setup, target, pair, key)
            point["reasons"].append("measured twice: the first time was disturbed as well")
        self._points += 1
        run = {
            "run_id": self._id,
            "started_utc": started_utc,
            "host": socket.gethostname(),
            "boot_id": lease.boot_id(),
            "config_sha256": setup.digest,
            "block": self._gpu.settings_made,
            "order": self._points,
            "spent_s": self._gpu.account.take(),
        }
        return point, run, load.about

    def compare(self, setup, target: Target, pair, repeat: int) -> dict:
        """Auto, chosen, chosen, auto: one fresh repeat. A window each: the repeats are its statistics."""
        setup = Setup(*setup[:-1], setup.measurement | estimate.COMPARED)
        points = []
        for number, clocks in enumerate((BASELINE, pair, pair, BASELINE)):
            point, _, _ = self.point(setup, target, clocks, f"fresh-{repeat}", number)
            del point["windows"]  # a comparison keeps the summaries
            points.append(point)
        return {"target": target.name, "repeat": repeat, "points": points}

    def _measure(self, setup, target: Target, pair, key) -> tuple:
        # made ready first, so that the board does not cool down between the heat and the warm-up; not held meanwhile,
        # since the heater may need its memory
        self._gpu.prepare(setup, target)
        self._gpu.come_into_band(lambda: self._gpu.prepare(setup, hottest(setup)))
        load = self._gpu.prepare(setup, target)
        point = measure(self._gpu, load, pair, setup.measurement, key)
        load.check()
        return point, load
