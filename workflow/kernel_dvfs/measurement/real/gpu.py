"""A real GPU behind the seam (measurement.seam): sets clocks, measures in windows aligned to the energy counter, and
notes what else happened meanwhile.

Works on a guarded board, an energy counter and loads; knows neither where they come from nor what a point is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from kernel_dvfs.measurement.counter import READING_LAG_S, AlignedWindow, EnergyCounter
from kernel_dvfs.measurement.real import clock_probe, preflight
from kernel_dvfs.measurement.real.watch import Watch, disturbances, look_at, rise, state_of
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.measurement.verdict import POWER_CAP_ACTIVE, held_by
from kernel_dvfs.measurement.visit import AUTO_SETTLE_S, AUTO_WINDOW_S, KERNEL_S, SETTLE_S
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, EXACT, POWER_CAP, Pair, check, label
from kernel_dvfs_clocks.errors import CounterFault, InputError
from kernel_dvfs_clocks.guard import lock_pair, ranges

if TYPE_CHECKING:
    from types import TracebackType

    from kernel_dvfs.measurement.real.loads import IterationLoad, Load, Loads, RunningIteration, RunningLoad
    from kernel_dvfs.measurement.seam import Gpu
    from kernel_dvfs.measurement.visit import Passes
    from kernel_dvfs.measurement.window import ClockProbe, RawWindow, RecordDevice, Watched, Window
    from kernel_dvfs_clocks.guard import Guard
    from kernel_dvfs_clocks.nvml.board import Board

# clocks count as settled (_has_settled) by slices of so long, at the latest after the limit
_SLICE_S = 0.25
_SETTLE_LIMIT_S = 5.0
_SAME_SHARE = 0.005
_SWAY_SHARE = 0.03
# at auto a clock may stay this far below the highest one without a reason from NVML: boards list clocks that they do
# not boost to (1950 of 2100 MHz on a GeForce, memory 9251 of 9501)
_FREE_SHARE = 0.8
_FEED_EVERY_S = 0.01
# periods of the counter that a short window holds; by so many a window's edges may come later than asked
_SHORT_PERIODS, _EDGE_PERIODS = 4, 3
# parts of a point's time; passes: of the whole iteration; choosing: GEMM algorithms, once in a study; preparing: plans,
# their tensors, graphs
PARTS = ("windows", "warm_up", "passes", "choosing", "preparing", "other")
# runs of a load that a stretch of time must hold to say how long one takes
_LEAST_RUNS = 6


class RealGpu:
    """The GPU of a guard, for the length of a session.

    about: the setup's `gpu` group. settings: its measurement settings. counter: calibrated; its period and read time
    are taken over. own_processes: how many compute processes are ours, None where the driver does not tell.
    is_wanted: whether to go on; asked now and then, and where it is not, Unwanted is raised.
    say: called with a line for the user where something takes long.
    """

    def __init__(
        self,
        guard: Guard,
        about: dict[str, Any],
        settings: dict[str, Any],
        loads: Loads,
        counter: EnergyCounter,
        own_processes: int | None,
        is_wanted: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:
        self._guard, self._loads = guard, loads
        self._board: Board = guard.board
        self._clocks, self._settings = about["clocks"], settings
        self._own_processes, self._is_wanted, self._say = own_processes, is_wanted, say
        self._counter = EnergyCounter(self._board.energy_mj, loads.now_s, loads.sleep, self._feed, self._sample)
        self._counter.period_s, self._counter.read_s = counter.period_s, counter.read_s
        self._device = self._identity(about)
        # in force; None: unknown. At first nothing is locked here, and to measure that nothing is set
        self._pair: Pair | None = BASELINE
        self._steady: RunningLoad | RunningIteration | None = None  # what runs on it now
        self._watch: Watch | None = None  # of the window that is being measured
        self._excesses: list[str] = []  # of windows since `disturbances` was asked
        self.probe: ClockProbe | None = None  # of the core clock at the session's first auto point; None: none taken
        self._about = about
        self.account = TimeAccount(loads.now_s)
        self.settings_made = 0  # how often clocks were changed
        self._may_set = False  # whether that has been tried

    # --- the seam -----------------------------------------------------------------------------------------------------

    def device(self) -> RecordDevice:
        """Return the record's `device` group."""
        return self._device

    def now_s(self) -> float:
        """Return the time by the clock of its loads."""
        return self._loads.now_s()

    def prepare(self, setup: Setup, target: MeasurementTarget) -> Load:
        """Return the load of a target. An algorithm that has yet to be chosen is chosen with nothing locked."""
        if not self._loads.chooses(setup, target):
            with self.account.part("preparing"):
                return self._loads.prepare(setup, target)
        with self.locked(BASELINE, ("choose",)), self.account.part("choosing"):
            return self._loads.prepare(setup, target)

    def iteration(self, setup: Setup) -> IterationLoad:
        """Return the whole iteration of a setup; algorithms are chosen as for `prepare`."""
        passes = [MeasurementTarget("pass", name) for name in setup.targets["pass"]]
        if not any(self._loads.chooses(setup, target) for target in passes):
            with self.account.part("preparing"):
                return self._loads.iteration(setup)
        with self.locked(BASELINE, ("choose",)), self.account.part("choosing"):
            return self._loads.iteration(setup)

    def move(self) -> bool:
        """Stop what runs, and have what is prepared from now on lie elsewhere in memory (loads.Loads.move)."""
        self.stop()
        return self._loads.move()

    def copy(self) -> RealGpu:
        """Return this object: there is only one such board."""
        return self

    def locked(self, pair: Pair, key: tuple) -> _RealClocksLocked:
        """Return a context in which a pair is in force; entering it gives the seconds that the change took.

        After a good end the pair stays in force, so that the next point at the same pair needs no change; after an
        error nothing is locked. The session's guard restores in any case.
        """
        check(self._clocks, pair)
        return _RealClocksLocked(self, pair)

    def request(self, pair: Pair) -> dict[str, Any]:
        """Return how the driver was asked: `range` allows all clocks up to the target, `exact` only the target."""
        if self._settings["clocks"] != "lock" or pair == BASELINE:
            return {}
        core, mem = ranges(self._clocks, pair, self._settings["lock"] == EXACT)
        return {
            "through": self._guard.through,
            "lock": self._settings["lock"],
            "core_range_mhz": core and [*core],
            "mem_range_mhz": mem and [*mem],
        }

    def warm_up(self, load: Load, seconds: float) -> None:
        """Run `load` for a while at the clocks in force, and on until the clocks have settled."""
        self._start(load)
        with self.account.part("warm_up"):
            self._settle(load, seconds)

    def _settle(self, load: Load, seconds: float) -> None:
        steady = cast("RunningLoad", self._steady)
        slice_s = max(_SLICE_S, _LEAST_RUNS * load.run_s)
        seen: list[tuple[float, int]] = []
        warm_s = self._loads.now_s() + seconds
        limit_s = warm_s + max(_SETTLE_LIMIT_S, 4 * slice_s)
        while self._loads.now_s() < limit_s and not (self._loads.now_s() >= warm_s and _has_settled(seen)):
            start_s = self._loads.now_s()
            self._run(slice_s)
            ran = steady.between(start_s, self._loads.now_s())
            seen.append((ran["sm_mhz"], self._board.mem_mhz()))

    def passes(self, iteration: IterationLoad, pair: Pair, pass_s: float) -> tuple[Passes, Watched]:
        """Return whole passes of an iteration at the clocks in force, about so long, and what was seen meanwhile."""
        with self.account.part("passes"):
            self._steady = passing = iteration.start(AUTO_SETTLE_S if pair[0] == AUTO else SETTLE_S, pass_s)
            while passing.settles():
                self._feed()
                self._loads.sleep(_FEED_EVERY_S)
            begin_s = self._loads.now_s()
            with self._watching() as watch:
                self._sample()
                passing.stay(pass_s + _EDGE_PERIODS * self._counter.period_s)
                span = self._counter.window(pass_s)
                self._sample()
                while not passing.is_over():
                    self._feed()
                    self._loads.sleep(_FEED_EVERY_S)
            end_s = self._loads.now_s()
            stamped = passing.passes()
            self.stop()
        self._check_energy(watch, span)
        watched = watch.watched(end_s - begin_s, stamped["sm_mhz"])
        passes: Passes = {
            "n": stamped["n"],
            "iteration_us": stamped["iteration_us"],
            "power_mw": span.energy_mj / (span.end_s - span.start_s),
            "is_capped": POWER_CAP_ACTIVE in held_by([watched]),
            "time_us": stamped["time_us"],
        }
        return passes, watched

    def power(self, load: Load, seconds: float) -> Window:
        """Return a short window of a load, at the clocks in force: longer where the power cap holds it, or the counter
        is slow. Raises CounterFault."""
        self._start(load)
        before = self._board.throttled()
        with self.account.part("warm_up"):
            self._run(KERNEL_S)
        if rise(before[0], self._board.throttled()[0]) or self._board.event_reasons() & POWER_CAP:
            seconds = max(seconds, AUTO_WINDOW_S)
        with self.account.part("windows"):
            return self._window(load, max(seconds, _SHORT_PERIODS * self._counter.period_s))

    def window(self, load: Load, seconds: float, key: tuple, number: int) -> Window:
        """Measure `load`, which runs, between two edges of the energy counter. Raises CounterFault."""
        with self.account.part("windows"):
            window = self._window(load, seconds)
            if load.less is None:
                return window
            own_mhz = cast("RunningLoad", self._steady).own_mhz()
            self.stop()
            self._start(load.less)
            # until the power reading, which the counter is held to, has forgotten the load
            self._run(READING_LAG_S)
            before = self._window(load.less, seconds)
            self.stop()
            self._start(load)  # as it was found
            return less(window, before, own_mhz)

    def _window(self, load: Load, seconds: float) -> Window:
        steady = cast("RunningLoad", self._steady)
        with self._watching() as watch:
            # forget what ran before, so that there is room for all batches of the window; what a load changes is put
            # back
            steady.run_for(0)
            self._feed()
            self._sample()
            span = self._counter.window(max(seconds, _LEAST_RUNS * load.run_s))
            self._sample()
        ran = steady.between(span.start_s, span.end_s)
        self._check_energy(watch, span)
        duration_s = span.end_s - span.start_s
        of_load = {
            "duration_s": duration_s,
            "energy_mj": span.energy_mj,
            "launches": ran["launches"],
            "time_us": ran["time_us"],
        }
        return cast("Window", of_load | watch.watched(duration_s, ran["sm_mhz"]))

    @contextmanager
    def _watching(self) -> Iterator[Watch]:
        """Return a context in which `_sample` looks for what it gives."""
        board = self._board
        self._watch = watch = Watch(
            lambda: look_at(board, counts=False), lambda: state_of(board), self._loads.now_s, self._own_processes
        )
        try:
            yield watch
            watch.end()
        finally:
            self._watch = None

    def _check_energy(self, watch: Watch, span: AlignedWindow) -> None:
        if contradiction := watch.contradiction(span):
            raise CounterFault(contradiction, fell=False)
        if excess := watch.excess(span, self._counter.late_s):
            self._excesses.append(excess)

    def look_for_locks(self) -> str:
        """Return why the core clock is not free, in words; "" where it is, or nothing tells. A light load shows it,
        once in a session. A lock that another tool has left is reset where clocks are ours to set."""
        if self._settings["share"] or self.settings_made:
            return ""  # what others run may hold the clock too; what has been locked here has been reset here
        top_mhz = clock_probe.top_mhz(self._clocks, self._settings["after"])
        if not top_mhz:
            return ""
        if self.probe is None:
            self.stop()
            self.probe = {"core_mhz": self._loads.clock_mhz(top_mhz), "top_mhz": top_mhz}
            if why := clock_probe.held(self.probe, self._about["compute_capability"]):
                uuid = self._board.uuid
                if self._settings["clocks"] == "lock":
                    self._say(f"GPU {uuid}: {why}; reset")
                    self._set(BASELINE)
                    return ""
                self._say(f"GPU {uuid}: {why}; its points are marked not_free; {clock_probe.remedy(uuid)}")
        return clock_probe.held(self.probe, self._about["compute_capability"])

    def check_free(self, windows: Sequence[Watched]) -> None:
        """Raise InputError where clocks that nobody here has locked stayed far below what the GPU has, and nothing that
        NVML names held them: another tool, or a run whose lease this one cannot see, has left a lock. Measured as auto,
        such a point would falsify everything that is compared with it."""
        listed = self._clocks["core_mhz"].get("listed", {})
        if not windows or not listed or held_by(windows):
            return
        seen = (
            (
                "core",
                "core",
                # the highest that NVML told: counted in cycles, the clock of a hot kernel may be a fifth below it
                max(window["core_mhz"][2] for window in windows),
                max(max(cores) for cores in listed.values()),
            ),
            ("mem", "memory", max(window["mem_mhz"][1] for window in windows), max(map(int, listed))),
        )
        for domain, word, seen_mhz, highest_mhz in seen[self.probe is not None :]:  # the probe has told of the core
            site = self._settings["after"].get(domain)
            highest_mhz = min(highest_mhz, site[1]) if site else highest_mhz
            if seen_mhz < _FREE_SHARE * highest_mhz:
                raise InputError(
                    f"GPU {self._board.uuid}: at auto its {word} clock stays at {seen_mhz:g} of {highest_mhz} MHz, and "
                    "NVML names nothing that holds it: another tool or a killed run has left it locked; reset it "
                    f"(kernel-dvfs reset --uuid {self._board.uuid}), or name the site's own lock in `after`"
                )

    def disturbances(self, windows: Sequence[Watched]) -> list[str]:
        """Return what came from outside while the windows ran, or made one of more power than there can be, each in
        words."""
        foreign = max((window["processes"] or 0 for window in windows), default=0)
        now = disturbances(foreign, self._about["power_limit_mw"], self._board.power_limit_mw(), self._board.mig())
        reasons = [*now, *self._excesses]
        self._excesses = []
        return reasons

    # --- clocks -------------------------------------------------------------------------------------------------------

    def take(self, pair: Pair) -> None:
        """Put a pair in force, memory first: the core clocks that exist depend on it."""
        if pair == self._pair:
            return
        if self._settings["clocks"] != "lock":
            if self._settings["clocks"] == "auto-only" and pair != BASELINE:
                raise InputError(f"clocks {label(pair)}: configured clocks: auto-only; configure clocks: lock")
            self._pair = pair  # set from outside, by the batch system; the windows tell whether it did
            return
        self._set(pair)

    def _set(self, pair: Pair) -> None:
        if not self._may_set:
            # the first time that anything is set; what a refusal leaves is the guard's to reset
            self._guard.announce("a probe of all clocks")
            preflight.check_permission(self._guard, self._clocks)
            self._may_set = True
        self._guard.announce(label(pair))
        self._pair = None
        self.settings_made += 1
        lock_pair(self._guard, self._clocks, pair, self._settings["lock"] == EXACT)
        self._pair = pair

    def release(self) -> None:
        """Stop what runs and leave no clock locked. Raises NotRestored."""
        try:
            self.stop()
        finally:
            if self._settings["clocks"] == "lock" and self._pair != BASELINE:
                self._pair = None
                self._guard.reset()
                self._pair = BASELINE

    # --- while a load runs --------------------------------------------------------------------------------------------

    def _start(self, load: Load) -> None:
        with self.account.part("preparing"):
            self._steady = load.start()

    def _run(self, seconds: float) -> None:
        # not run_for of what runs, which forgets: the clocks are asked for afterwards
        end_s = self._loads.now_s() + seconds
        while (left_s := end_s - self._loads.now_s()) > 0:
            self._feed()
            self._loads.sleep(min(left_s, _FEED_EVERY_S))
        self._feed()

    def _feed(self) -> None:
        if not self._is_wanted():
            raise Unwanted("the client that asked for it is gone")
        if self._steady:
            self._steady.feed()

    def _sample(self) -> None:
        if self._watch:
            self._feed()  # four calls of the driver take a while
            self._watch.look()

    def stop(self) -> None:
        """Let what runs come to its end."""
        if self._steady:
            self._steady.stop()
            self._steady = None

    def _identity(self, about: dict[str, Any]) -> RecordDevice:
        keys = ("name", "uuid", "pci_bus_id", "vbios", "power_limit_mw", "ecc", "energy_scope")
        device = {
            "kind": "nvml",
            **{key: about[key] for key in keys},
            **self._guard.nvml.versions,
            **self._loads.facts,
            "persistence": self._board.persistence(),
            "counter_period_ms": round(1000 * self._counter.period_s, 3),
            "counter_read_ms": round(1000 * self._counter.read_s, 3),
        }
        return cast("RecordDevice", device)


class Unwanted(InputError):
    """A point was given up, because nobody waits for it any more."""


class TimeAccount:
    """Seconds spent in each part by the clock `now_s`. A part within another one stops the outer one meanwhile."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._begin()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Return a context whose time belongs to the part `name`."""
        outer = self._switch(name)
        try:
            yield
        finally:
            self._switch(outer)

    def take(self) -> dict[str, float]:
        """Return {part: seconds} since it was last taken."""
        self._switch(self._running)
        spent = {name: round(seconds, 6) for name, seconds in self._spent.items()}
        self._begin()
        return spent

    def _begin(self) -> None:
        self._running, self._since_s = "other", self._now_s()
        self._spent = dict.fromkeys(PARTS, 0.0)

    def _switch(self, name: str) -> str:
        now_s = self._now_s()
        self._spent[self._running] += now_s - self._since_s
        outer, self._running, self._since_s = self._running, name, now_s
        return outer


class _RealClocksLocked:
    def __init__(self, gpu: RealGpu, pair: Pair) -> None:
        self._gpu, self._pair = gpu, pair

    def __enter__(self) -> float:
        began_s = self._gpu._loads.now_s()
        try:
            self._gpu.take(self._pair)
        except BaseException:
            self._gpu.release()  # memory may be locked already
            raise
        return self._gpu._loads.now_s() - began_s

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._gpu.stop()
        else:
            self._gpu.release()


def less(window: Window, before: Window, own_mhz: float | None = None) -> Window:
    """Return what a window of a load would be without what each run of it begins with, of which `before` is a window.

    Time of a run, and energy and clock cycles in it, are differences. The window is as much shorter as the beginning
    took of it. own_mhz: the load's clock where it is known, since a rest measured by itself runs at another one.
    Raises InputError where the beginning took as long as the whole.
    """
    share = before["time_us"] / window["time_us"]
    power_mw, before_mw = (part["energy_mj"] / part["duration_s"] for part in (window, before))
    own_mw = (power_mw - share * before_mw) / (1 - share) if share < 1 else 0.0
    if own_mw <= 0:
        raise InputError(
            f"a section or paced kernel took no time or energy of its own ({window['time_us']:.1f} us at "
            f"{power_mw / 1e3:.1f} W with it, {before['time_us']:.1f} us at {before_mw / 1e3:.1f} W without); "
            "raise window_s"
        )
    duration_s = (1 - share) * window["duration_s"]
    processes = [count for part in (window, before) if (count := part["processes"]) is not None]
    low_mhz, mhz, high_mhz = window["core_mhz"]
    own_mhz = round((mhz - share * before["core_mhz"][1]) / (1 - share) if own_mhz is None else own_mhz, 1)
    cap_ns = window["cap_ns"] - share * before["cap_ns"] * window["duration_s"] / before["duration_s"]
    return {
        **window,
        "duration_s": duration_s,
        "energy_mj": own_mw * duration_s,
        "time_us": (1 - share) * window["time_us"],
        "core_mhz": [min(low_mhz, own_mhz), own_mhz, max(high_mhz, own_mhz)],
        "cap_ns": min(max(0, round(cap_ns)), round(1e9 * duration_s)),
        "thermal_delta": window["thermal_delta"] + before["thermal_delta"],
        "processes": max(processes, default=None),
        "with_beginning": _raw(window),
        "beginning": _raw(before),
    }


def _has_settled(seen: Sequence[tuple[float, int]]) -> bool:
    """Return whether clocks, (core, memory) MHz slice by slice, are on their way no more: the last two agree, or the
    last three go to and fro by little, as a power cap has them do for as long as it acts."""
    if len(seen) < 2 or seen[-1][1] != seen[-2][1]:
        return False
    before_mhz, now_mhz = seen[-2][0], seen[-1][0]
    if abs(now_mhz - before_mhz) <= _SAME_SHARE * before_mhz:
        return True
    last = [core_mhz for core_mhz, mem_mhz in seen[-3:] if mem_mhz == seen[-1][1]]
    sways = len(last) == 3 and (last[1] - last[0]) * (last[2] - last[1]) < 0
    return sways and max(last) - min(last) <= _SWAY_SHARE * max(last)


def _raw(window: Window) -> RawWindow:
    return {"duration_s": window["duration_s"], "energy_mj": window["energy_mj"], "time_us": window["time_us"]}


if TYPE_CHECKING:
    _: type[Gpu[Any]] = RealGpu  # mypy compares every signature
