"""What an operation or a byte costs on this GPU: energy microbenchmarks at default clocks.

Sets nothing on the GPU: no clock, no power limit. Each probe (experiments.calibration.probes) is one load that keeps
one part of the GPU busy with a known number of operations: warm-up, then a window cut at the edges of the energy
counter while it runs without a gap. The table is written after every probe; one that fails leaves its error there.

    python experiments/benchmarks/gpu_energy.py --results results -o experiments/results/energy_probes_h200.csv

--check-counter: the counter's energy beside the integral of instantaneous power (NVML field 186, read as fast as it
can be) over the same windows, three loads, ten windows each, into <output without suffix>_counter.csv.
"""

import argparse
import csv
import datetime
import io
import itertools
import os
import statistics
import sys
import time
from contextlib import suppress

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

from experiments.calibration.probes import PROBES
from kernel_dvfs.measurement.counter import EnergyCounter
from kernel_dvfs.native.load import library_sha256, load
from kernel_dvfs.native.steady import Steady
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text
from kernel_dvfs_clocks.nvml.board import Board
from kernel_dvfs_clocks.nvml.library import Library

# fmt: off
COLUMNS = (
    "gpu", "probe", "load", "operands", "duty", "warps", "sms",
    "unit", "operations", "level", "read_byte", "write_byte",
    "time_us", "energy_mj", "power_w", "sm_mhz", "nvml_sm_mhz_min", "nvml_sm_mhz_median", "nvml_sm_mhz_max",
    "mem_mhz", "instant_power_w", "memory_power_w", "temp_before_c", "temp_c", "throttle_share",
    "launches", "window_s", "counter_period_ms",
    "operations_per_s", "byte_per_s", "pj_per_operation", "pj_per_byte",
    "above_spin_pj_per_operation", "above_spin_pj_per_byte",
    "algorithm", "date", "driver", "cuda", "library_sha256", "error",
)
COUNTER_COLUMNS = (
    "gpu", "load", "window", "window_s", "counter_j", "integral_j", "integral_over_counter", "power_samples",
    "power_w", "time_us", "sm_mhz", "temp_c", "counter_period_ms", "date", "driver", "error",
)
# fmt: on
LAUNCH_S = 2e-3  # a launch of a compute probe: long beside its start, short beside a window
TRIAL_ITERATIONS = 200
# nvml.h: NVML_FI_DEV_POWER_INSTANT, mW; NVML_POWER_SCOPE_GPU (the board), NVML_POWER_SCOPE_MEMORY
INSTANT_POWER_FIELD, BOARD_SCOPE, MEMORY_SCOPE = 186, 0, 2
CHECKED = ("gemm", "dram_copy_w32", "spin_w1")
CHECK_WINDOWS = 10
SAME_CLOCK = 0.01


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results", help="folder with native/cuda (default: results)")
    parser.add_argument("--warmup-s", type=float, default=1.5)
    parser.add_argument("--window-s", type=float, default=2.0)
    parser.add_argument("--budget-s", type=float, default=300, help="start no probe later than this (default: 300)")
    parser.add_argument("--only", help="probes whose name contains this")
    parser.add_argument("--check-counter", action="store_true", help="then check the energy counter itself")
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    if options.window_s <= 0 or options.warmup_s < 0:
        parser.error("a window of more than 0 s, after a warm-up of at least 0 s")
    return options


# --- loads ------------------------------------------------------------------------------------------------------------


class Idle:
    """The GPU with a context and without work, behind the methods of Steady."""

    def __init__(self, board):
        self._board, self._sm_mhz = board, []

    def feed(self):
        pass

    def run_for(self, seconds):
        time.sleep(seconds)

    def sample(self):
        self._sm_mhz.append(self._board.sm_mhz())

    def between(self, start_s, end_s):
        # no kernel, no device clock: NVML's samples have to do
        return {"time_us": 1e6 * (end_s - start_s), "launches": 1, "sm_mhz": statistics.fmean(self._sm_mhz)}

    def stop(self):
        pass


class Load:
    """A probe ready to run: steady (or Idle), checksum function or None, and the work of one run."""

    def __init__(self, cuda, device, board, probe, pinned):
        self.work = {"operations": 0, "read_byte": 0, "write_byte": 0, "unit": "", "level": "", "sms": ""}
        self.algorithm, self._checksum = "", None
        if probe.load == "idle":
            self.steady = Idle(board)
            return
        arena = cuda.Arena(device)
        runnable = self._gemm(cuda, arena, probe, pinned) if probe.load == "gemm" else self._probe(cuda, arena, probe)
        runnable.run(1)
        self._checksum, self._before = runnable.checksum, runnable.checksum()
        if probe.duty < 1:
            runnable = self._diluted(cuda, device, arena, runnable, probe.duty)
        self.steady = Steady(cuda, device, runnable)

    def _probe(self, cuda, arena, probe):
        settings = dict(probe.settings)
        if probe.load in ("dram_read", "dram_write", "dram_copy"):
            iterations = 1
        else:
            iterations = TRIAL_ITERATIONS
            for _ in range(2):  # the first trial may be all launch and waking up
                trial = cuda.EnergyProbe(arena, probe.load, iterations=iterations, **settings)
                trial.run(3)
                iterations = max(1, round(iterations * LAUNCH_S / (1e-3 * trial.time(5) / 5)))
                del trial
        made = cuda.EnergyProbe(arena, probe.load, iterations=iterations, **settings)
        self.work = made.info()
        return made

    def _gemm(self, cuda, arena, probe, pinned):
        s = probe.settings
        fills = {"a": {"kind": "normal", "sd": 1.0}, "b": {"kind": "normal", "sd": 1.0}}
        if s["operands"] == "zero":
            fills = {name: {"kind": "zero"} for name in fills}
        elif s["operands"] == "half":
            fills["a"] = {"kind": "lower", "sd": 1.0}
        shape = {"count": s["count"], "M": s["m"], "N": s["n"], "K": s["k"], "layout": s["layout"]}
        plan = cuda.Plan(
            arena,
            "gemm",
            shape | {"has_bias": 0, "accumulate": 0},
            tensors={name: {"fill": fill} for name, fill in fills.items()},
            algorithm=pinned.get(tuple(shape.values()), "timed"),
        )
        # one algorithm for all operands and duties of a shape, whatever their clock
        pinned[tuple(shape.values())] = plan.info()["pinned"]
        self.algorithm = plan.info()["algorithm_id"]
        self.work |= {
            "operations": 2 * s["count"] * s["m"] * s["n"] * s["k"],
            "unit": "flop",
            "level": "dram",
            # compulsory: each operand once
            "read_byte": 2 * s["count"] * (s["m"] * s["k"] + s["k"] * s["n"]),
            "write_byte": 2 * s["count"] * s["m"] * s["n"],
        }
        return plan

    def _diluted(self, cuda, device, arena, runnable, duty):
        """The load and a spin in turn; the spin takes the cycles that `duty` leaves."""
        clock = cuda.ClockProbe(device, 2)
        runnable.run(20)
        clock.mark()
        n = 50
        launch_us = 1e3 * runnable.time(n) / n
        clock.mark()
        cycles = launch_us * clock.sm_mhz()[0]
        spin = cuda.EnergyProbe(arena, "spin", warps=1, iterations=max(1, round(cycles * (1 / duty - 1))))
        return cuda.Pass([([runnable, spin], 1)])

    def require_unchanged(self, name):
        if self._checksum and self._checksum() != self._before:
            raise InputError(f"{name}: its results changed while it was measured; the numbers mean nothing")


# --- one probe --------------------------------------------------------------------------------------------------------


def measure(cuda, device, board, sensors, pinned, probe, options) -> dict:
    """One line of the table. sensors: {scope: () -> W}; pinned: GEMM algorithms by shape, for probes to share."""
    load = Load(cuda, device, board, probe, pinned)
    steady, clocks, watts = load.steady, [], {scope: [] for scope in sensors}

    def sample():
        clocks.append(board.sm_mhz())
        for scope, read_w in sensors.items():
            with suppress(InputError):  # of use, not needed
                watts[scope].append(read_w())
        if isinstance(steady, Idle):
            steady.sample()

    counter = EnergyCounter(board.energy_mj, time.monotonic, time.sleep, steady.feed, sample)
    steady.run_for(options.warmup_s)
    counter.calibrate(2)
    for samples in (clocks, *watts.values()):
        samples.clear()
    before_c, (before_ns, *_) = board.temperature_c(), board.throttled()
    window = counter.window(options.window_s)
    (after_ns, *_), after_c, memory_mhz = board.throttled(), board.temperature_c(), board.mem_mhz()
    ran = steady.between(window.start_s, window.end_s)
    steady.stop()
    load.require_unchanged(probe.name)
    duration_s = window.end_s - window.start_s
    power_w = window.energy_mj / 1e3 / duration_s
    byte = load.work["read_byte"] + load.work["write_byte"]
    run_s = 1e-6 * ran["time_us"]
    throttled = None if None in (before_ns, after_ns) else min(1.0, (after_ns - before_ns) / 1e9 / duration_s)
    return {
        **{name: load.work[name] for name in ("unit", "level", "operations", "read_byte", "write_byte", "sms")},
        "time_us": round(ran["time_us"], 4),
        "energy_mj": round(power_w * ran["time_us"] * 1e-3, 5),
        "power_w": round(power_w, 2),
        "sm_mhz": round(ran["sm_mhz"], 1),
        "nvml_sm_mhz_min": min(clocks),
        "nvml_sm_mhz_median": statistics.median(clocks),
        "nvml_sm_mhz_max": max(clocks),
        "mem_mhz": memory_mhz,
        "instant_power_w": _mean(watts.get(BOARD_SCOPE)),
        "memory_power_w": _mean(watts.get(MEMORY_SCOPE)),
        "temp_before_c": before_c,
        "temp_c": after_c,
        "throttle_share": "" if throttled is None else round(throttled, 3),
        "launches": ran["launches"],
        "window_s": round(duration_s, 4),
        "counter_period_ms": round(1e3 * counter.period_s, 2),
        "operations_per_s": f"{load.work['operations'] / run_s:.6g}" if load.work["operations"] else "",
        "byte_per_s": f"{byte / run_s:.6g}" if byte else "",
        "pj_per_operation": _pj(power_w * run_s, load.work["operations"]),
        "pj_per_byte": _pj(power_w * run_s, byte),
        "algorithm": load.algorithm,
    }


def _mean(samples):
    return round(statistics.fmean(samples), 2) if samples else ""


def _pj(energy_j, count):
    return f"{1e12 * energy_j / count:.5g}" if count else ""


def above_spin(lines) -> None:
    """What a load costs above a GPU that only spins, where both ran at one clock."""
    spin = next((line for line in lines if line["probe"] == "spin_w1" and not line["error"]), None)
    for line in lines:
        if spin is None or line["error"] or line["load"] in ("idle", "spin"):
            continue
        if abs(line["sm_mhz"] / spin["sm_mhz"] - 1) > SAME_CLOCK:
            continue
        more_j = (line["power_w"] - spin["power_w"]) * 1e-6 * line["time_us"]
        line["above_spin_pj_per_operation"] = _pj(more_j, line["operations"])
        line["above_spin_pj_per_byte"] = _pj(more_j, line["read_byte"] + line["write_byte"])


def write_table(path, columns, lines):
    text = io.StringIO()
    table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(lines)
    write_text(path, text.getvalue())


def measure_probes(cuda, device, board, nvml, common, options) -> int:
    """All probes into the output; the number that failed."""
    lines, pinned, start_s = [], {}, time.monotonic()
    sensors = {}
    for scope in (BOARD_SCOPE, MEMORY_SCOPE):
        try:
            sensors[scope] = instant_power_w(nvml, board.uuid, scope)
        except Exception as error:  # of use, not needed
            print(f"power sensor of scope {scope}: {error}", flush=True)
    for probe in PROBES:
        if options.only and options.only not in probe.name:
            continue
        settings = probe.settings
        line = common | {
            "probe": probe.name,
            "load": probe.load,
            "operands": settings.get("operands", "random") if probe.load not in ("idle", "spin") else "",
            "duty": probe.duty,
            "warps": settings.get("warps", "" if probe.load in ("idle", "gemm") else 32),
            "error": "",
        }
        elapsed_s = time.monotonic() - start_s
        try:
            if elapsed_s > options.budget_s:
                raise InputError(f"skipped: {elapsed_s:.0f} s of {options.budget_s:g} s had passed")
            line |= measure(cuda, device, board, sensors, pinned, probe, options)
            said = f"{line['power_w']:7.1f} W {line['sm_mhz']:7.1f} MHz {line['temp_c']:3} C {line['time_us']:11.2f} us"
            said += f"  {line['pj_per_operation']} pJ/op" if line["pj_per_operation"] else ""
            said += f"  {line['pj_per_byte']} pJ/B" if line["pj_per_byte"] else ""
        except Exception as error:  # the GPU is lent once: what the other probes say must not be lost
            line["error"] = said = " ".join(f"{type(error).__name__}: {error}".split())
            with suppress(Exception):
                device.synchronize()
        lines.append(line)
        above_spin(lines)
        write_table(options.output, COLUMNS, lines)
        print(f"[{time.monotonic() - start_s:5.1f} s] {probe.name:16} {said}", flush=True)
    return sum(1 for line in lines if line["error"])


# --- the counter itself -----------------------------------------------------------------------------------------------


def instant_power_w(nvml, uuid, scope=BOARD_SCOPE):
    """A function that reads the power of this moment, W. Raises InputError where the board does not tell."""
    handle = nvml.call("nvmlDeviceGetHandleByUUID", uuid, gpu=uuid)

    def read():
        (value,) = nvml.call("nvmlDeviceGetFieldValues", handle, [(INSTANT_POWER_FIELD, scope)], gpu=uuid)
        if value.nvmlReturn != 0:
            raise InputError(f"NVML field {INSTANT_POWER_FIELD} (instantaneous power): error {value.nvmlReturn}")
        return value.value.uiVal / 1e3

    read()
    return read


def integral_j(samples, start_s, end_s) -> float:
    """Energy from (time, W) samples by trapezoids; the first and last sample hold out to the ends."""
    inside = [(t, w) for t, w in samples if start_s <= t <= end_s]
    if len(inside) < 2:
        raise InputError(f"{len(inside)} samples of power in the window, two are needed")
    points = [(start_s, inside[0][1]), *inside, (end_s, inside[-1][1])]
    return sum((t1 - t0) * (w0 + w1) / 2 for (t0, w0), (t1, w1) in itertools.pairwise(points))


def check_counter(cuda, device, board, nvml, common, options) -> None:
    path = os.path.splitext(options.output)[0] + "_counter.csv"
    lines = []
    for probe in (probe for probe in PROBES if probe.name in CHECKED):
        base = {name: common[name] for name in ("gpu", "date", "driver")} | {"load": probe.name}
        try:
            read_w = instant_power_w(nvml, board.uuid)
            steady, samples = Load(cuda, device, board, probe, {}).steady, []

            def sample(_, steady=steady, samples=samples, read_w=read_w):
                # in place of sleeping: reads as fast as NVML answers, but never while an edge is looked for
                before_s = time.monotonic()
                watt = read_w()
                samples.append(((before_s + time.monotonic()) / 2, watt))
                steady.feed()

            counter = EnergyCounter(board.energy_mj, time.monotonic, sample, steady.feed)
            steady.run_for(options.warmup_s)
            counter.calibrate(3)
            for number in range(CHECK_WINDOWS):
                samples.clear()
                window = counter.window(options.window_s)
                ran = steady.between(window.start_s, window.end_s)
                counted_j = window.energy_mj / 1e3
                summed_j = integral_j(samples, window.start_s, window.end_s)
                duration_s = window.end_s - window.start_s
                lines.append(
                    base
                    | {
                        "window": number,
                        "window_s": round(duration_s, 4),
                        "counter_j": round(counted_j, 3),
                        "integral_j": round(summed_j, 3),
                        "integral_over_counter": round(summed_j / counted_j, 5),
                        "power_samples": len(samples),
                        "power_w": round(counted_j / duration_s, 2),
                        "time_us": round(ran["time_us"], 4),
                        "sm_mhz": round(ran["sm_mhz"], 1),
                        "temp_c": board.temperature_c(),
                        "counter_period_ms": round(1e3 * counter.period_s, 2),
                        "error": "",
                    }
                )
            steady.stop()
        except Exception as error:  # as above
            lines.append(base | {"error": " ".join(f"{type(error).__name__}: {error}".split())})
            print(f"{probe.name}: {lines[-1]['error']}", flush=True)
        write_table(path, COUNTER_COLUMNS, lines)
        mine = [line for line in lines if line["load"] == probe.name and not line["error"]]
        if len(mine) > 1:
            watts = [line["power_w"] for line in mine]
            ratios = [line["integral_over_counter"] for line in mine]
            print(
                f"counter, {probe.name}: {statistics.fmean(watts):.1f} W, sd {statistics.stdev(watts):.2f} W; integral "
                f"over counter {statistics.fmean(ratios):.4f}, {mine[0]['power_samples']} samples a window",
                flush=True,
            )
    print(f"written: {path}", file=sys.stderr)


def main():
    options = arguments()
    cuda = load("cuda", options.results)
    device = cuda.Device(0)
    about = device.info()
    nvml = Library().__enter__()  # open to the end of the process
    board = Board(nvml, about["uuid"])
    common = {
        "gpu": about["name"],
        "date": datetime.date.today().isoformat(),
        "driver": nvml.versions["driver"],
        "cuda": f"{about['runtime'] // 1000}.{about['runtime'] % 1000 // 10}",
        "library_sha256": library_sha256("cuda", options.results)[:12],
    }
    limit_w = (board.power_limit_mw() or 0) / 1e3
    print(
        f"{about['name']} {about['uuid']}, limit {limit_w:g} W, driver {common['driver']}; nothing is set", flush=True
    )
    failed = measure_probes(cuda, device, board, nvml, common, options)
    print(f"written: {options.output}", file=sys.stderr)
    if options.check_counter:
        check_counter(cuda, device, board, nvml, common, options)
    if failed:
        sys.exit(f"error: {failed} probes were not measured; their reasons stand in {options.output}")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
