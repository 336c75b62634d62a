"""Capture training steps on a real GPU at its default clocks, measure their kernels alone, and add them up.

Sets nothing on the GPU (`clocks: auto-only`). Per step: `kernel-dvfs capture`, then the step as a whole, its kernels
from the costliest down to a share of its time, its sections, and the whole once more, each by the job of a workflow
through the measuring process of the GPU. What is not measured (the smallest kernels) counts with its time in the step
and the mean power of the rest.

    kernel-dvfs build --graph on
    python benchmarks/own_step.py -o out                            # every step of benchmarks/own_steps/steps.py
    python benchmarks/own_step.py -o out --steps conv llama --limit-s 300

Writes STEP.step.json (the capture), STEP.csv (a row a kernel, section and whole) and own_step.json (the sums).
"""

import argparse
import csv
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "workflow"))

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_json
from kernel_dvfs.gpu.clocks import BASELINE
from kernel_dvfs.measurement.real import client
from kernel_dvfs.measurement.real.client import RemoteBench
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.plan.config import check
from kernel_dvfs.plan.study import load, plan
from kernel_dvfs.report.tables.step_check import ENERGY_PERCENT, TIME_PERCENT
from kernel_dvfs.workload import step as steps

HERE = Path(__file__).resolve().parent
STEPS = ("gpt_eager", "gpt_compiled", "llama", "conv", "triton_kernel", "gpt3_xl")
# a short protocol: one window of 20 periods of the energy counter a target, from whatever temperature the board has
PROTOCOL = {"warmup_s": 0.5, "window_s": 2.0, "windows": 1, "max_windows": 1, "temperature": "cool", "band_c": 60}
COLUMNS = (
    *("study", "target", "name", "section", "launches", "time_us", "energy_mj", "power_w", "core_mhz", "cap_share"),
    *("step_time_us", "alone_to_step", "repeatable", "verdict", "wall_s"),
)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="nvml", help="nvml, nvml:UUID or nvml:INDEX (default: nvml)")
    parser.add_argument("--config", default="config.yaml", help="the rest of the configuration (default: config.yaml)")
    parser.add_argument("--steps", nargs="+", default=STEPS, choices=STEPS, help="default: all")
    parser.add_argument("--captured", default="", help="a folder with STEP.step.json, to capture nothing again")
    parser.add_argument("--share", type=float, default=0.985, help="of the step's time to measure (default: 0.985)")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="measure no kernel of a step after that")
    parser.add_argument("-o", "--output", required=True, help="folder for the results")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    output = Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in options.steps:
        print(f"=== {name}", flush=True)
        try:
            path, capture_s = captured(name, output, options.captured)
            rows.append(studied(name, path, capture_s, output, options))
            write_json(output / "own_step.json", {"date": datetime.now(UTC).isoformat()[:10], "steps": rows})
            print(line(rows[-1]), flush=True)
        except InputError as error:
            print(f"{name}: refused: {error}", flush=True)
    for row in rows:
        print(line(row))


def captured(name: str, output: Path, known: str) -> tuple[Path, float | None]:
    """(the step's file, seconds that the capture took, None where it was there)."""
    path, begin_s = output / f"{name}.step.json", time.monotonic()
    if known:
        path.write_bytes((Path(known) / path.name).read_bytes())
        return path, None
    source = f"{os.path.relpath(HERE / 'own_steps' / 'steps.py')}:{name}"
    words = [sys.executable, "-m", "kernel_dvfs", "capture", source, "-o", str(path), "--name", name.replace("_", "-")]
    environment = os.environ | {"PYTHONPATH": str(HERE.parent / "workflow")}
    if subprocess.run(words, check=False, env=environment).returncode:
        raise InputError("see above")
    return path, time.monotonic() - begin_s


def studied(name: str, path: Path, capture_s: float | None, output: Path, options) -> dict:
    """Measure a step; its sums beside the whole."""
    step = steps.read(path)
    config = load(options.config) | PROTOCOL
    config |= {"gpu": options.gpu, "clocks": "auto-only", "workload": {"step": str(path)}}
    check(config, str(HERE.parent / "workflow" / "schemas" / "config.schema.yaml"))
    study = plan(config)
    setup_path = study.setup.write()
    setup, begin_s = read(setup_path), time.monotonic()
    wholes = [Target("pass", each) for each in study.passes]
    last = [Target("pass", steps.WHOLE)] if steps.WHOLE in study.passes else []
    costliest = sorted(step.measured, key=lambda each: -(each.time_us or 0) * each.launches)
    rows, share = [], 0.0
    try:
        for what in [*last, *(Target("kernel", each.id) for each in costliest), *wholes]:
            late = time.monotonic() - begin_s > options.limit_s
            if what.study == "kernel" and (share >= options.share or late):
                continue
            row = measured(step, setup, setup_path, what)
            rows.append(row)
            if what.study == "kernel":
                share += row["launches"] * row["step_time_us"] / step.time_us
    finally:
        client.stop(setup_path)
    with (output / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return summed(name, step, rows, share, capture_s, time.monotonic() - begin_s)


def measured(step, setup, setup_path: str, what: Target) -> dict:
    """A row of the table: one target or pass at auto."""
    begin_s = time.monotonic()
    bench = RemoteBench(setup, setup_path, what)
    point = bench.point(BASELINE, "sweep", 0)
    summary, windows = point["summary"], point["windows"]
    row = {
        "study": what.study,
        "target": what.name,
        "time_us": round(summary["time_us"], 3),
        "energy_mj": summary["energy_mj"],
        "power_w": round(summary["power_mw"] / 1e3, 2),
        "core_mhz": point["reached"]["core_mhz"],
        "cap_share": round(
            sum(each["cap_ns"] for each in windows) / 1e9 / sum(each["duration_s"] for each in windows), 3
        ),
        "verdict": point["verdict"],
        "wall_s": round(time.monotonic() - begin_s, 2),
    }
    if what.study == "kernel":
        about = step.target(what.name)
        row |= {"name": about.name, "section": about.section, "launches": about.launches}
        row |= {"step_time_us": about.time_us, "alone_to_step": round(row["time_us"] / about.time_us, 4)}
        row["repeatable"] = about.repeatable
    print(f"{what.study}/{what.name}: {row['time_us']:.1f} us {row['power_w']:.0f} W {row['verdict']}", flush=True)
    return row


def summed(name: str, step, rows: list[dict], share: float, capture_s: float | None, study_s: float) -> dict:
    """The sums of a step's kernels beside its sections and the whole, differences in percent of what ran as one."""
    kernels = {row["target"]: row for row in rows if row["study"] == "kernel"}
    power_w = sum(_of(row, "energy_mj") for row in kernels.values()) / sum(
        _of(row, "time_us") for row in kernels.values()
    )
    parts = {}
    for part in (*step.sections, steps.WHOLE):
        whole = [row for row in rows if row["study"] == "pass" and row["target"] == part]
        if not whole:
            parts[part] = {"refused": step.not_repeated.get(part, "not measured")}
            continue
        time_us = energy_mj = rest_us = 0.0
        for target in step.targets:
            if part in (target.section, steps.WHOLE):
                row = kernels.get(target.id)
                lone_us = target.launches * (target.time_us or 0.0)
                time_us += _of(row, "time_us") if row else lone_us
                energy_mj += _of(row, "energy_mj") if row else power_w * lone_us
                rest_us += 0.0 if row else lone_us
        whole_us = sum(row["time_us"] for row in whole) / len(whole)
        whole_mj = sum(row["energy_mj"] for row in whole) / len(whole)
        parts[part] = {
            "whole_ms": whole_us / 1e3,
            "sum_ms": time_us / 1e3,
            "time_percent": 100 * (time_us / whole_us - 1),
            "whole_j": whole_mj / 1e3,
            "sum_j": energy_mj / 1e3,
            "energy_percent": 100 * (energy_mj / whole_mj - 1),
            "rest_share": rest_us / time_us,
            "whole_w": whole_mj / whole_us * 1e3,
            "whole_times_ms": [row["time_us"] / 1e3 for row in whole],
        }
    total = parts[steps.WHOLE]
    return {
        "step": name,
        "device": step.device,
        "versions": step.versions,
        "nodes": len(step.nodes),
        "launches": len(step.order),
        "targets": len(step.targets),
        "coverage": step.coverage,
        "measured_share": share,
        "left_at_auto": {target.id: target.reason for target in step.left_at_auto},
        "restored": sum(target.repeatable == "restored" for target in step.targets),
        "is_restored": step.state.is_restored,
        "same_bits": step.whole.same_bits,
        "deterministic": step.whole.deterministic,
        "state_byte": step.state.byte,
        "overlap_us": step.whole.overlap_us,
        "overlapped": list(step.whole.overlapped),
        "capture_s": capture_s,
        "study_s": study_s,
        "parts": parts,
        "adds_up": "time_percent" in total
        and abs(total["time_percent"]) <= TIME_PERCENT
        and abs(total["energy_percent"]) <= ENERGY_PERCENT,
    }


def _of(row: dict, what: str) -> float:
    return row["launches"] * row[what]


def line(row: dict) -> str:
    parts = "; ".join(
        f"{name} {part['sum_ms']:.3f}/{part['whole_ms']:.3f} ms {part['time_percent']:+.2f} %, {part['sum_j']:.3f}/"
        f"{part['whole_j']:.3f} J {part['energy_percent']:+.2f} %"
        if "sum_ms" in part
        else f"{name} {part['refused']}"
        for name, part in row["parts"].items()
    )
    return (
        f"{row['step']}: {row['nodes']} nodes, {row['launches']} launches, {row['targets']} targets, coverage "
        f"{100 * row['coverage']:.2f} %, measured {100 * row['measured_share']:.2f} %, restored {row['is_restored']}, "
        f"captured in {row['capture_s'] or 0:.0f} s, studied in {row['study_s']:.0f} s, adds up {row['adds_up']}\n  {parts}"
    )


if __name__ == "__main__":
    main()
