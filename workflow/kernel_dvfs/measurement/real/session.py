"""A session: one GPU taken, checked and kept warm, and points measured on it until it ends."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import compact_json
from kernel_dvfs.gpu.clocks import BASELINE, Pair
from kernel_dvfs.gpu.guard import Guard
from kernel_dvfs.gpu.noise import Key
from kernel_dvfs.gpu.nvml import lease
from kernel_dvfs.gpu.setters.choice import AUTO
from kernel_dvfs.measurement import consistency
from kernel_dvfs.measurement.point import Point, measure
from kernel_dvfs.measurement.real import loads as kernels
from kernel_dvfs.measurement.real import preflight
from kernel_dvfs.measurement.real.gpu import RealGpu
from kernel_dvfs.measurement.real.plateau import Plateau
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.stopping import COMPARED
from kernel_dvfs.measurement.target import Target, hottest
from kernel_dvfs.package import VERSION

if TYPE_CHECKING:
    from types import TracebackType

    from kernel_dvfs.measurement.consistency import Comparison
    from kernel_dvfs.measurement.window import Device

# the measuring process of the session before may still be giving gigabytes back to the driver
_ENDING_S = 10.0
# settings that hold for a whole session; all others may differ from point to point
_OF_SESSION = ("clocks", "through", "lock", "after", "share", "temperature", "band_c")


def identity(setup: Setup) -> str:
    """What a session must have in common with the setup of a request; where it differs, a new session is needed.

    12 hex digits, of the GPU, the settings of a session, the library of kernels, the captured step if it is of one, and
    this package's version.
    """
    step = setup.workload.get("step")
    try:
        library = kernels.library_sha256(step is not None)
    except InputError:
        library = "none"  # opening the session says so
    settings = {key: setup.measurement.get(key) for key in _OF_SESSION}
    text = compact_json([setup.gpu["uuid"], settings, library, step, VERSION])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _least_periods(settings: dict[str, Any]) -> int:
    """Of the energy counter in a window."""
    least: int = settings.get("least_periods", preflight.LEAST_PERIODS)
    return least


class Session:
    """with Session(setup, folder, say, is_wanted) as session: session.point(...). To be entered before NVML is opened.

    folder: the GPU's results folder (setup.gpu_folder). say: called with a line for the user. is_wanted: whether the
    point that is being measured is still wanted. Entering raises InputError where the GPU is taken, unfit or not ours
    to set; leaving raises locks.NotRestored.
    """

    def __init__(
        self, setup: Setup, folder: str, say: Callable[[str], None], is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        self._setup, self._say, self._is_wanted = setup, say, is_wanted
        settings = setup.measurement
        self.identity = identity(setup)
        through = settings.get("through", AUTO)
        self._guard = Guard(setup.gpu["uuid"], settings["after"], settings["clocks"], say, through)
        heater = f"{self.identity} {setup.workload['name']} {hottest(setup).name} {setup.gpu['power_limit_mw']} mW"
        self._plateau = Plateau(folder, heater)
        self._hot_by_file = False  # the plateau that points start from is one that an earlier session has found
        self._points = self._moves = 0
        self._gpu: RealGpu | None = None

    def __enter__(self) -> Session:
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
        preflight.check_board(board, settings["share"], self._say, _ENDING_S)
        before = board.compute_processes()
        loads = kernels.open_loads(self._guard.nvml, setup.gpu["uuid"], setup.workload.get("step"))
        now = board.compute_processes()
        own = None if before is None or now is None else now - before
        counter = preflight.check_counter(
            board, loads.now_s, loads.sleep, settings["window_s"], _least_periods(settings)
        )
        # last, so that a refusal by any other check has changed nothing
        if settings["clocks"] == "lock":
            self._guard.announce("a probe of all clocks")
            preflight.check_permission(self._guard, setup.gpu["clocks"])
        self._gpu = RealGpu(self._guard, setup.gpu, settings, loads, counter, own, self._is_wanted, self._say)
        if settings["temperature"] == "plateau":
            self._gpu.hot_c = self._plateau.known_c()
            self._hot_by_file = self._gpu.hot_c is not None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._gpu:
                self._gpu.stop()
        finally:
            self._guard.__exit__(kind, error, trace)

    @property
    def gpu(self) -> RealGpu:
        """The GPU, while the session is open."""
        assert self._gpu
        return self._gpu

    @property
    def device(self) -> Device:
        """The record's `device` group."""
        return self.gpu.device()

    @property
    def _name(self) -> str:
        """Of what shares this process and where tensors lie in memory."""
        return f"{self._id}.{self._moves}" if self._moves else self._id

    def move(self) -> None:
        """Begin another session within this process, if the kernels' tensors can lie elsewhere (loads.Loads.move)."""
        self._moves += self.gpu.move()

    def rest(self) -> None:
        """Leave no clock locked while nobody asks for anything."""
        self.gpu.release()

    def point(
        self, setup: Setup, target: Target, pair: Pair, campaign: str, repeat: int
    ) -> tuple[Point, dict[str, Any], dict[str, Any]]:
        """Measure one point; one that was disturbed is measured once more.

        Returns (the point, further fields of the record's `run` group, further fields of its `kernel` group).
        """
        settings = setup.measurement
        period_s = self.device["counter_period_ms"] / 1000
        preflight.check_window(setup.gpu["uuid"], period_s, settings["window_s"], _least_periods(settings))
        key = Key(campaign, setup.workload["name"], f"{target.study}/{target.name}", repeat)
        self.gpu.account.take()  # what passed since the last point is not this point's
        started_utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        point, load = self._measure(setup, target, pair, key)
        if point["verdict"] == "disturbed":
            if self._hot_by_file:
                # what was found hours ago need not hold any more
                self._plateau.forget()
                self.gpu.hot_c, self._hot_by_file = None, False
            point, load = self._measure(setup, target, pair, key)
            point["reasons"].append("measured twice: the first time was disturbed as well")
        self._points += 1
        run = {
            "run_id": self._name,
            "started_utc": started_utc,
            "host": socket.gethostname(),
            "boot_id": lease.boot_id(),
            "config_sha256": setup.digest,
            "block": self.gpu.settings_made,
            "order": self._points,
            "spent_s": self.gpu.account.take(),
            "probe": self.gpu.probe,
        }
        return point, run, load.about

    def compare(self, setup: Setup, target: Target, pair: Pair, repeat: int) -> Comparison:
        """Measure auto, `pair`, `pair`, auto: one repeat in a campaign of its own, which nothing was chosen from.

        Each point is a single window, since the repeats are the statistics.
        """
        setup = setup._replace(measurement=setup.measurement | COMPARED)
        points = []
        for number, clocks in enumerate((BASELINE, pair, pair, BASELINE)):
            point, _, _ = self.point(setup, target, clocks, f"fresh-{repeat}", number)
            points.append(consistency.without_windows(point))
        return {"target": target.name, "repeat": repeat, "session": self._name, "points": points}

    def _measure(self, setup: Setup, target: Target, pair: Pair, key: Key) -> tuple[Point, kernels.Load]:
        # prepared before the board is heated, so that it does not cool down between the heat and the warm-up; not kept
        # meanwhile, since the heater may need its memory
        self.gpu.prepare(setup, target)
        was_known = self.gpu.hot_c is not None
        self.gpu.come_into_band(lambda: self.gpu.prepare(setup, hottest(setup)))
        if not was_known and self.gpu.hot_c is not None and setup.measurement["temperature"] == "plateau":
            self._plateau.keep(self.gpu.hot_c)
        held = self.gpu.look_for_locks() if pair == BASELINE else ""
        load = self.gpu.prepare(setup, target)
        point = measure(self.gpu, load, pair, setup.measurement, key)
        if pair == BASELINE:
            self.gpu.check_free(point["windows"])
        if held:
            point["verdict"] = "not_free"
            point["reasons"].insert(0, held)
        self._guard.check_held()
        load.check()
        return point, load
