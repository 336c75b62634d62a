"""A session: one GPU taken, checked and kept warm, and points measured on it until it ends."""

from __future__ import annotations

import hashlib
import math
import os
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

from kernel_dvfs.gpu.noise import Key
from kernel_dvfs.measurement import consistency
from kernel_dvfs.measurement.point import Point, measure, of_windows, requested
from kernel_dvfs.measurement.real import loads as kernels
from kernel_dvfs.measurement.real import preflight
from kernel_dvfs.measurement.real.gpu import RealGpu
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.stopping import COMPARED
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.measurement.verdict import POWER_CAP_ACTIVE, held_by, judge
from kernel_dvfs.measurement.visit import AUTO_PASS_S, PASS_S, WINDOW_S, Visit, VisitMeasurement, asked, round_of
from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import compact_json
from kernel_dvfs_clocks.guard import Guard
from kernel_dvfs_clocks.nvml import lease
from kernel_dvfs_clocks.package import VERSION
from kernel_dvfs_clocks.setters.choice import AUTO

if TYPE_CHECKING:
    from types import TracebackType

    from kernel_dvfs.measurement.consistency import Comparison
    from kernel_dvfs.measurement.visit import Passes
    from kernel_dvfs.measurement.window import RecordDevice, Watched, Window

# the measuring process of the session before may still be giving gigabytes back to the driver
_ENDING_S = 10.0
# settings that hold for a whole session; all others may differ from point to point
_OF_SESSION = ("clocks", "through", "lock", "after", "share")


def identity(setup: Setup) -> str:
    """Return what a session must have in common with the setup of a request; where it differs, a new session is needed.

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
    """Return how many periods of the energy counter a window holds at least."""
    least: int = settings.get("least_periods", preflight.LEAST_PERIODS)
    return least


class Session:
    """with Session(setup, say, is_wanted) as session: session.point(...).

    say: called with a line for the user. is_wanted: whether the point that is being measured is still wanted. Entering
    raises InputError where the GPU is taken, unfit or not ours to set; leaving raises NotRestored.
    """

    def __init__(self, setup: Setup, say: Callable[[str], None], is_wanted: Callable[[], bool] = lambda: True) -> None:
        self._setup, self._say, self._is_wanted = setup, say, is_wanted
        settings = setup.measurement
        self.identity = identity(setup)
        through = settings.get("through", AUTO)
        self._guard = Guard(setup.gpu["uuid"], settings["after"], settings["clocks"], say, through)
        self._passed: tuple[tuple, Passes, Watched, float] | None = None  # of which sweep; the last ones
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
        own_processes = None if before is None or now is None else now - before
        counter = preflight.check_counter(board, loads.now_s, loads.sleep)
        self._gpu = RealGpu(self._guard, setup.gpu, settings, loads, counter, own_processes, self._is_wanted, self._say)

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
    def device(self) -> RecordDevice:
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
        self, setup: Setup, target: MeasurementTarget, pair: Pair, campaign: str, repeat: int
    ) -> tuple[Point, dict[str, Any], dict[str, Any]]:
        """Measure one point of a sweep; one that was disturbed is measured once more.

        Where clocks differ from pair to pair, its time comes from passes of the whole iteration. Returns (the point,
        further fields of the record's `run` group, further fields of its `kernel` group).
        """
        if not _is_of_passes(setup, target):
            return self._alone(setup, target, pair, campaign, repeat)
        return self._recorded(setup, lambda: self._in_passes(setup, target, pair, (campaign, repeat)))

    def _alone(
        self, setup: Setup, target: MeasurementTarget, pair: Pair, campaign: str, repeat: int
    ) -> tuple[Point, dict[str, Any], dict[str, Any]]:
        """Measure a target repeated alone, as `point` does."""
        settings = setup.measurement
        period_s = self.device["counter_period_ms"] / 1000
        preflight.check_window(setup.gpu["uuid"], period_s, settings["window_s"], _least_periods(settings))
        key = Key(campaign, setup.workload["name"], f"{target.study}/{target.name}", repeat)
        return self._recorded(setup, lambda: self._measure(setup, target, pair, key))

    def _recorded(
        self, setup: Setup, measured: Callable[[], tuple[Point, kernels.Load]]
    ) -> tuple[Point, dict[str, Any], dict[str, Any]]:
        self.gpu.account.take()  # what passed since the last point is not this point's
        started_utc = _now_utc()
        point, load = measured()
        if point["verdict"] == "disturbed":
            self._passed = None
            point, load = measured()
            point["reasons"].append("measured twice: the first time was disturbed as well")
        self._points += 1
        run = self.run(started_utc) | {
            "config_sha256": setup.digest,
            "block": self.gpu.settings_made,
            "order": self._points,
            "spent_s": self.gpu.account.take(),
            "probe": self.gpu.probe,
        }
        return point, run, load.about

    def run(self, started_utc: str) -> dict[str, Any]:
        """Return what records say of this session, and when what they hold was begun."""
        about = {"run_id": self._name, "started_utc": started_utc}
        return about | {"host": socket.gethostname(), "boot_id": lease.boot_id()}

    def visit(self, setup: Setup, visit: Visit) -> tuple[VisitMeasurement, dict[str, Any]]:
        """Measure a visit, once: who asks for it decides what follows from its verdict. Returns it and the record's
        `run` group."""
        started_utc = _now_utc()
        return self._visit(setup, visit), self.run(started_utc)

    def _visit(self, setup: Setup, visit: Visit) -> VisitMeasurement:
        gpu, pair = self.gpu, visit.pair
        # prepared before anything is timed: most of it is done once in a session
        iteration = gpu.iteration(setup)
        launches = {name: about["launches_per_iteration"] for name, about in setup.targets["kernel"].items()}
        loads = [iteration.round(round_of(names, launches)) for names in visit.metered]
        held = gpu.look_for_locks() if pair == BASELINE else ""
        begin_s = gpu.now_s()
        with gpu.locked(pair, ()) as switch_s:
            passes, seen = _of_setup(setup, *gpu.passes(iteration, pair, visit.pass_s))
            windows = [gpu.power(load, visit.window_s) for load in loads]
            watched = [seen, *windows]
            disturbances = gpu.disturbances(watched)
        spent_s = gpu.now_s() - begin_s
        reached = {"core_mhz": seen["core_mhz"][1], "mem_mhz": seen["mem_mhz"][1]}
        verdict, reasons, _ = judge(pair, reached, watched, "", disturbances)
        if pair == BASELINE:
            gpu.check_free(watched)
        if held:
            verdict, reasons = "not_free", [held, *reasons]
        self._guard.check_held()
        iteration.check()
        request = asked(visit) | requested(pair, setup.measurement, switch_s) | gpu.request(pair)
        powers = [
            {
                "kernels": list(names),
                "duration_s": window["duration_s"],
                "power_mw": window["energy_mj"] / window["duration_s"],
                "time_us": window["time_us"],
                "core_mhz": window["core_mhz"][1],
                "is_capped": POWER_CAP_ACTIVE in held_by([window]),
            }
            for names, window in zip(visit.metered, windows)
        ]
        return cast(
            "VisitMeasurement",
            {
                "request": request,
                "passes": passes,
                "powers": powers,
                "reached": reached,
                "temp_c": [seen["temp_c"][0], watched[-1]["temp_c"][1]],
                "spent_s": spent_s,
                "verdict": verdict,
                "reasons": reasons,
            },
        )

    def _in_passes(self, setup: Setup, target: MeasurementTarget, pair: Pair, of: tuple) -> tuple[Point, kernels.Load]:
        """Return a point whose time is that of passes of the whole iteration, made once while the pair is in force, and
        whose power is that of one window of the target. of: what else has the same passes."""
        gpu = self.gpu
        iteration = gpu.iteration(setup)
        load = gpu.prepare(setup, target) if target.study == "pass" else iteration.round({target.name: 1})
        held = gpu.look_for_locks() if pair == BASELINE else ""
        with gpu.locked(pair, ()) as switch_s:
            key = (setup.digest, pair, of, gpu.settings_made, self._moves)
            if self._passed is None or self._passed[0] != key:
                pass_s = AUTO_PASS_S if pair == BASELINE else PASS_S
                passes, seen = _of_setup(setup, *gpu.passes(iteration, pair, pass_s))
                self._passed = key, passes, seen, switch_s
            _, passes, seen, switch_s = self._passed
            window = _with_time(gpu.power(load, WINDOW_S), seen, _time_us(setup, target, passes))
            disturbances = gpu.disturbances([window])
        asked_for = requested(pair, setup.measurement, switch_s) | gpu.request(pair)
        point = of_windows(pair, asked_for, [window], "", disturbances)
        self._look(pair, point, held)
        iteration.check()
        return point, load

    def _look(self, pair: Pair, point: Point, held: str) -> None:
        if pair == BASELINE:
            self.gpu.check_free(point["windows"])
        if held:
            point["verdict"] = "not_free"
            point["reasons"].insert(0, held)
        self._guard.check_held()

    def compare(self, setup: Setup, target: MeasurementTarget, pair: Pair, repeat: int) -> Comparison:
        """Measure auto, `pair`, `pair`, auto: one repeat in a campaign of its own, which nothing was chosen from.

        Each point is a single window, since the repeats are the statistics.
        """
        setup = setup._replace(measurement=setup.measurement | COMPARED)
        points = []
        for number, clocks in enumerate((BASELINE, pair, pair, BASELINE)):
            point, _, _ = self._alone(setup, target, clocks, f"fresh-{repeat}", number)
            points.append(consistency.without_windows(point))
        return {"target": target.name, "repeat": repeat, "session": self._name, "points": points}

    def _measure(self, setup: Setup, target: MeasurementTarget, pair: Pair, key: Key) -> tuple[Point, kernels.Load]:
        held = self.gpu.look_for_locks() if pair == BASELINE else ""
        load = self.gpu.prepare(setup, target)
        point = measure(self.gpu, load, pair, setup.measurement, key)
        self._look(pair, point, held)
        load.check()
        return point, load


def _is_of_passes(setup: Setup, target: MeasurementTarget) -> bool:
    """Return whether a point's time comes from passes of the whole iteration: not at auto alone, and not a captured
    step's sections, whose kernels may run side by side."""
    is_section = target.study == "pass" and "step" in setup.workload
    return setup.measurement["clocks"] != "auto-only" and not is_section


def _of_setup(setup: Setup, passes: Passes, seen: Watched) -> tuple[Passes, Watched]:
    """Return passes with the times of the setup's kernels alone: a captured step runs others as well."""
    return {**passes, "time_us": {name: passes["time_us"][name] for name in setup.targets["kernel"]}}, seen


def _time_us(setup: Setup, target: MeasurementTarget, passes: Passes) -> float:
    """Return the time of one run of a target, by passes."""
    times_us = passes["time_us"]
    if target.study == "kernel":
        return times_us[target.name]
    return math.fsum(count * times_us[name] for name, count in setup.targets["pass"][target.name])


def _with_time(window: Window, seen: Watched, time_us: float) -> Window:
    """Return a window of power with the time of passes, and what was seen during these. The energy of a launch stays
    that of the window: alone, at the power cap, a hot kernel runs at a lower clock than among others."""
    bits = sorted({*window["reasons"], *seen["reasons"]})
    reasons = {bit: max(window["reasons"].get(bit, 0.0), seen["reasons"].get(bit, 0.0)) for bit in bits}
    foreign = [count for part in (window, seen) if (count := part["processes"]) is not None]

    def spread(domain: Literal["core_mhz", "mem_mhz"]) -> list[float]:
        # what passes ran at, and how far both strayed
        lowest, highest = (pick(window[domain][at], seen[domain][at]) for pick, at in ((min, 0), (max, 2)))
        return [lowest, seen[domain][1], highest]

    return {
        **window,
        "energy_mj": window["energy_mj"] * window["time_us"] / time_us,
        "time_us": time_us,
        "launches": max(1, round(1e6 * window["duration_s"] / time_us)),
        "core_mhz": spread("core_mhz"),
        "mem_mhz": spread("mem_mhz"),
        "thermal_delta": window["thermal_delta"] + seen["thermal_delta"],
        "reasons": reasons,
        "processes": max(foreign, default=None),
    }


def _now_utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
