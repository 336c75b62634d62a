"""Capture training steps on a real GPU at its default clocks, measure their kernels alone, and add them up.

Sets nothing on the GPU. Of several GPUs, it takes the one whose UUID is in CUDA_VISIBLE_DEVICES. Per step:
`kernel-dvfs capture`, then, in a process of its own, the step as a whole, its hot kernels with and without rests, the
others from the costliest down to a share of its time, the sections that can be repeated, and the whole once more. The
loads are those of a study (measurement.real.step_loads), the windows aligned to the energy counter as there; they are
short, one a target, at whatever temperature the board has, so that six steps fit into ten minutes. What is not measured
(the smallest kernels) counts with its time in the step and the mean power of the rest of its section. A section that
cannot be repeated by itself is the step up to its end less the step up to its beginning; where others lie between its
kernels, it is what they leave of the whole.

    kernel-dvfs build --graph on
    python experiments/benchmarks/own_step.py -o out      # every step of own_steps/steps.py
    python experiments/benchmarks/own_step.py -o out --steps conv llama --limit-s 60
    python experiments/benchmarks/own_step.py -o out --steps train.py:make_step --paced 12

Writes STEP.step.json (the capture), STEP.csv (a row a kernel, section and whole) and STEP.json (the sums).
"""

import argparse
import csv
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from kernel_dvfs.measurement.counter import EnergyCounter
from kernel_dvfs.measurement.real.gpu import less
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.workload import step as steps
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import read_json, write_json
from kernel_dvfs_clocks.nvml.board import resolve
from kernel_dvfs_clocks.nvml.library import Library

# how far the sum may be from the whole, percent
TIME_PERCENT, ENERGY_PERCENT = 3.0, 5.0
HERE = Path(__file__).resolve().parent
STEPS = ("gpt_eager", "gpt_compiled", "llama", "conv", "triton_kernel", "gpt3_xl")
COLUMNS = (
    *("study", "target", "name", "section", "launches", "time_us", "energy_mj", "power_w", "core_mhz", "cap_share"),
    *("step_time_us", "step_mhz", "flop", "alone_to_step", "repeatable", "rest_us", "wall_s"),
)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", nargs="+", default=STEPS, help=f"of {', '.join(STEPS)} (all), or FILE.py:FUNCTION")
    parser.add_argument("--paced", type=int, default=0, help="so many hot kernels also at their clock of the step (0)")
    parser.add_argument("--captured", default="", help="a folder with STEP.step.json, to capture nothing again")
    parser.add_argument("--share", type=float, default=0.985, help="of the step's time to measure (default: 0.985)")
    parser.add_argument("--limit-s", type=float, default=1e9, help="begin no kernel of a step after that")
    parser.add_argument("--warm-s", type=float, default=0.4, help="run each target before its window (default: 0.4)")
    parser.add_argument("--window-s", type=float, default=1.05, help="of each target (default: 1.05)")
    parser.add_argument("--keep", default="", metavar="DIR", help="also keep nodes and traces of the captures there")
    parser.add_argument("--study", help=argparse.SUPPRESS)  # in a process of its own: measure this step
    parser.add_argument("-o", "--output", required=True, help="folder for the results")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.study:
        study(options.study, options)
        return
    output = Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    sources = {_name(each): each for each in options.steps}
    for name, source in sources.items():
        print(f"=== {name}", flush=True)
        capture_s = captured(name, source, output, options.captured, options.keep)
        # a process a step: all of its memory goes with it
        done = subprocess.run([sys.executable, *sys.argv, "--study", name], check=False)
        if done.returncode:
            print(f"{name}: not measured (exit code {done.returncode})", flush=True)
            continue
        content = read_json(output / f"{name}.json") | {"capture_s": capture_s}
        write_json(output / f"{name}.json", content)
    for name in sources:
        if (output / f"{name}.json").is_file():
            print(line(read_json(output / f"{name}.json")))


def _name(step: str) -> str:
    """What a step's files are called: `train-make_step` of /home/me/train.py:make_step."""
    path, colon, function = step.rpartition(":")
    return f"{Path(path).stem}-{function}" if colon else step


def captured(name: str, source: str, output: Path, known: str, keep: str) -> float | None:
    """Seconds that the capture took; None where it was there."""
    path, begin_s = output / f"{name}.step.json", time.monotonic()
    if known and (Path(known) / path.name).is_file():
        path.write_bytes((Path(known) / path.name).read_bytes())
        return None
    source = source if ":" in source else f"{os.path.relpath(HERE / 'own_steps' / 'steps.py')}:{source}"
    words = ["-m", "kernel_dvfs", "capture", source, "-o", str(path), "--name", name.replace("_", "-")]
    words += ["--keep", str(Path(keep) / name)] if keep else []
    subprocess.run([sys.executable, *words], check=False)
    return time.monotonic() - begin_s


class Bench:
    """Measures targets of a captured step in this process, clocks as they are."""

    def __init__(self, path: Path, options) -> None:
        self._options, self.step = options, steps.read(path)
        self._board = resolve(Library().__enter__(), "")
        from kernel_dvfs_step.loads import StepLoads

        self._loads = StepLoads(
            self._board.uuid, {"file": str(path), "checksum": self.step.checksum, "code": self.step.source}
        )
        self._running = None
        self._counter = EnergyCounter(self._board.energy_mj, time.monotonic, time.sleep, self._feed)
        self._counter.calibrate()

    def _feed(self) -> None:
        if self._running:
            self._running.feed()

    def row(self, what: MeasurementTarget) -> dict:
        """A row of the table: one target or pass at auto."""
        begin_s = time.monotonic()
        load = self._loads.prepare(None, what)
        window = self._window(load)
        if load.less:
            window = less(window, self._window(load.less))
        load.check()
        power_w = window["energy_mj"] / 1e3 / window["duration_s"]
        row = {
            "study": what.study,
            "target": what.name,
            "time_us": round(window["time_us"], 3),
            "energy_mj": round(power_w * window["time_us"] * 1e-3, 6),
            "power_w": round(power_w, 2),
            "core_mhz": round(window["core_mhz"][1], 1),
            "cap_share": round(min(1.0, window["cap_ns"] / 1e9 / window["duration_s"]), 3),
            "wall_s": round(time.monotonic() - begin_s, 2),
        }
        if "rest_us" in load.about:
            row["rest_us"] = load.about["rest_us"]
        if what.study == "kernel":
            about = self.step.target(what.name)
            row |= {
                "step_mhz": about.core_mhz,
                "flop": about.flop,
                "name": about.name,
                "section": about.section,
                "launches": about.launches,
            }
            row |= {"step_time_us": about.time_us, "alone_to_step": round(row["time_us"] / about.time_us, 4)}
            row["repeatable"] = about.repeatable
        return row

    def _window(self, load) -> dict:
        """One window of a load, as a study has it (measurement.seam.Window), as far as a row needs it."""
        self._running = load.start()
        self._running.run_for(self._options.warm_s)
        held_ns = self._board.throttled()[0] or 0
        span = self._counter.window(max(self._options.window_s, 4 * load.run_s))
        held_ns = (self._board.throttled()[0] or 0) - held_ns
        ran = self._running.between(span.start_s, span.end_s)
        self._running.stop()
        self._running = None
        return {
            "duration_s": span.end_s - span.start_s,
            "energy_mj": span.energy_mj,
            "time_us": ran["time_us"],
            "launches": ran["launches"],
            "core_mhz": [ran["sm_mhz"]] * 3,
            "cap_ns": held_ns,
            "thermal_delta": 0,
            "processes": None,
        }


def study(name: str, options) -> None:
    """Measure a step: the table of its rows, and its sums beside the whole."""
    output = Path(options.output)
    begin_s = time.monotonic()
    try:
        bench = Bench(output / f"{name}.step.json", options)
        ready_s = time.monotonic() - begin_s
        step = bench.step
        whole = [MeasurementTarget("pass", steps.WHOLE)] if steps.WHOLE in step.passes else []
        passes = [MeasurementTarget("pass", each) for each in step.passes if each != steps.WHOLE]
        hot = step.paced[: options.paced]
        costliest = sorted(step.measured, key=lambda each: -(each.time_us or 0) * each.launches)
        rows, share = [], 0.0
        with (output / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, COLUMNS)
            table.writeheader()

            def measure(what: MeasurementTarget) -> None:
                rows.append(bench.row(what))
                table.writerow(rows[-1])
                # what is measured stays where this process is stopped
                file.flush()
                print(f"{time.monotonic() - begin_s:.1f} s: {what.study} {what.name}", flush=True)

            for what in whole:
                measure(what)
            for target in [*hot, *(each for each in costliest if each not in hot)]:
                is_hot = target in hot
                if (share >= options.share and not is_hot) or time.monotonic() - begin_s > ready_s + options.limit_s:
                    break
                measure(MeasurementTarget("kernel", target.id))
                share += target.launches * target.time_us / step.time_us
                if is_hot:
                    measure(MeasurementTarget("pass", f"{steps.PACED}{target.id}"))
            for what in [*passes, *whole]:
                measure(what)
    except InputError as error:
        sys.exit(f"error: {error}")
    times = {"ready_s": ready_s, "study_s": time.monotonic() - begin_s}
    write_json(output / f"{name}.json", summed(name, step, rows, share) | times)


def summed(name: str, step, rows: list[dict], share: float) -> dict:
    """The sums of a step's kernels beside its sections and the whole, differences in percent of what ran as one."""
    kernels = {row["target"]: row for row in rows if row["study"] == "kernel"}
    # at their clock of the step: those whose clock is not as high alone
    paced = {steps.paced_kernel(row["target"]): row for row in rows if row.get("rest_us")}
    as_one = {}
    for part in step.passes:
        ran = [row for row in rows if row["study"] == "pass" and row["target"] == part]
        as_one[part] = tuple(sum(row[what] for row in ran) / len(ran) for what in ("time_us", "energy_mj"))
    left = [part for part in step.sections if part not in as_one]
    if len(left) == 1 and steps.WHOLE in as_one:
        others = [as_one[part] for part in step.sections if part not in left]
        as_one[left[0]] = tuple(
            whole - sum(other[place] for other in others) for place, whole in enumerate(as_one[steps.WHOLE])
        )
    sums = _with_whole({part: _sum(step, kernels, part) for part in step.sections})
    hot = _with_whole({part: _sum(step, kernels | paced, part) for part in step.sections})
    parts = {}
    for part, (time_us, energy_mj, rest_us) in sums.items():
        own = [each for each in step.targets if part in (each.section, steps.WHOLE)]
        parts[part] = {"sum_ms": time_us / 1e3, "sum_j": energy_mj / 1e3, "rest_share": rest_us / time_us}
        parts[part]["within_step_ms"] = sum(each.launches * (each.time_us or 0.0) for each in own) / 1e3
        if part in as_one:
            whole_us, whole_mj = as_one[part]
            parts[part] |= {
                "whole_ms": whole_us / 1e3,
                "whole_j": whole_mj / 1e3,
                "whole_w": 1e3 * whole_mj / whole_us,
                "time_percent": 100 * (time_us / whole_us - 1),
                "energy_percent": 100 * (energy_mj / whole_mj - 1),
                "paced_time_percent": 100 * (hot[part][0] / whole_us - 1),
                "paced_energy_percent": 100 * (hot[part][1] / whole_mj - 1),
                "by_difference": part in left or part in step.by_difference,
            }
    whole = parts[steps.WHOLE]
    capped = [row for row in kernels.values() if row["cap_share"] > 0.5]
    free = [row for row in kernels.values() if row["cap_share"] < 0.05]
    return {
        "step": name,
        "date": datetime.now(UTC).isoformat()[:10],
        "device": step.device,
        "versions": step.versions,
        "nodes": len(step.nodes),
        "launches": len(step.order),
        "targets": len(step.targets),
        "coverage": step.coverage,
        "measured_share": share,
        "left_at_auto": {target.id: target.reason for target in step.left_at_auto},
        "not_repeated": step.not_repeated,
        "restored_targets": sum(target.repeatable == "restored" for target in step.targets),
        "state_byte": step.state.byte,
        # each row has put the state back and compared it, as far as it was saved
        "is_restored": not step.state.left_out,
        "same_bits": step.whole.same_bits,
        "deterministic": step.whole.deterministic,
        "overlap_us": step.whole.overlap_us,
        "overlapped": list(step.whole.overlapped),
        "time_alone_to_step": {"capped": _ratio(capped), "not_capped": _ratio(free)},
        "parts": parts,
        "paced": len(paced),
        "paced_share": sum(each.launches * (each.time_us or 0.0) for each in step.targets if each.id in paced)
        / (step.time_us or 1.0),
        # paced where that was measured
        "adds_up": "time_percent" in whole
        and abs(whole["paced_time_percent"]) <= TIME_PERCENT
        and abs(whole["paced_energy_percent"]) <= ENERGY_PERCENT,
    }


def _with_whole(sums: dict[str, tuple]) -> dict[str, tuple]:
    """These sums of sections, and of the step."""
    return {**sums, steps.WHOLE: tuple(sum(each[place] for each in sums.values()) for place in range(3))}


def _sum(step, kernels: dict[str, dict], part: str) -> tuple[float, float, float]:
    """(us, mJ, us of what was not measured) of the targets of a section."""
    targets = [target for target in step.targets if target.section == part]
    rows = [(kernels[target.id], target.launches) for target in targets if target.id in kernels]
    known = rows or [(row, row["launches"]) for row in kernels.values()]
    power = sum(row["energy_mj"] * count for row, count in known) / sum(row["time_us"] * count for row, count in known)
    rest_us = sum(target.launches * (target.time_us or 0.0) for target in targets if target.id not in kernels)
    time_us = sum(row["time_us"] * count for row, count in rows) + rest_us
    return time_us, sum(row["energy_mj"] * count for row, count in rows) + power * rest_us, rest_us


def _ratio(rows: list[dict]) -> float | None:
    """Time alone over time in the step, of all launches of these kernels."""
    within = sum(row["launches"] * row["step_time_us"] for row in rows)
    return sum(row["launches"] * row["time_us"] for row in rows) / within if within else None


def line(row: dict) -> str:
    parts = "; ".join(
        f"{name} {part['sum_ms']:.3f}/{part['whole_ms']:.3f} ms {part['time_percent']:+.2f} %, {part['sum_j']:.3f}/"
        f"{part['whole_j']:.3f} J {part['energy_percent']:+.2f} %, paced {part['paced_time_percent']:+.2f} % "
        f"{part['paced_energy_percent']:+.2f} %, within the step {part['within_step_ms']:.3f} ms"
        f"{' (by difference)' * part['by_difference']}"
        for name, part in row["parts"].items()
        if "whole_ms" in part
    )
    return (
        f"{row['step']}: {row['nodes']} nodes, {row['launches']} launches, {row['targets']} targets, coverage "
        f"{100 * row['coverage']:.2f} %, measured {100 * row['measured_share']:.2f} %, restored {row['is_restored']}, "
        f"captured in {row['capture_s'] or 0:.0f} s, studied in {row['study_s']:.0f} s, adds up {row['adds_up']}, "
        f"alone to step {row['time_alone_to_step']}\n  {parts}"
    )


if __name__ == "__main__":
    main()
