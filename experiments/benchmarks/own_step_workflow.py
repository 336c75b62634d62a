"""Take training steps through the whole workflow on a real GPU at its default clocks: captured, every kernel measured,
hot kernels at their clock of the step, sections, the whole, and the page.

Sets nothing on the GPU (`clocks: auto-only`). Per step two calls of Snakemake: `profile`, which needs the GPU, then,
once all steps are measured, `all` for the page, which does not. Records stay in results/<gpu>/, so a call that was
stopped goes on where it was. To be run from the root of the repository; on two GPUs at once from two copies of it.

    kernel-dvfs build --graph on
    python experiments/benchmarks/own_step_workflow.py -o out     # every step of own_steps/steps.py
    python experiments/benchmarks/own_step_workflow.py -o out --gpu nvml:1 --steps llama gpt3_xl --limit-s 600

Writes per step STEP/ (step_totals, step_check, step_kernels, passes as CSV); steps.csv, a row a step: nodes, targets,
coverage, the sums of kernels against the whole, whether every bit was put back, exit code and seconds of each stage;
paced.csv, a row a kernel that was to run at its clock of the step. Tables are taken only where the page was made by
this call. Ends with exit code 1 where a step is not complete.
"""

import argparse
import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from kernel_dvfs.plan.config import check, load
from kernel_dvfs.plan.study import plan
from kernel_dvfs.workload import step as steps
from kernel_dvfs_clocks.files import read_json, write_json
from kernel_dvfs_clocks.nvml.library import Library

STEPS = ("gpt_eager", "gpt_compiled", "llama", "conv", "triton_kernel", "gpt3_xl")
TABLES = ("step_totals", "step_check", "step_kernels", "passes")
SOURCE = "experiments/benchmarks/own_steps/steps.py"
# windows of 2 s are the shortest that a counter which moves every 100 ms allows
PROTOCOL = {
    **{"clocks": "auto-only", "auto_repeats": 1, "warmup_s": 0.1, "window_s": 2, "windows": 1, "max_windows": 1},
    "native": {"cpu": "off", "cuda": "off", "pipeline": "off"},
}
# what a run needs to stop in order: the point that is measured comes to its end, then the process that measures
_PATIENCE_S = 60


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", nargs="+", default=STEPS, choices=STEPS, help="default: all, in this order")
    parser.add_argument("--gpu", default="nvml", help="nvml, nvml:UUID or nvml:INDEX (default: nvml)")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="measure no longer, all steps together")
    parser.add_argument(
        "--no-pages", action="store_true", help="measure only; without it, a later call makes the pages"
    )
    parser.add_argument("-o", "--output", required=True, help="folder for the results")
    return parser.parse_args()


def main(options: argparse.Namespace) -> None:
    output, begin_s = Path(options.output), time.monotonic()
    output.mkdir(parents=True, exist_ok=True)
    spent = {}
    for name in options.steps:
        left_s = options.limit_s - (time.monotonic() - begin_s)
        if left_s > 0:
            spent[name] = {"measured": snakemake(name, options.gpu, "profile", output, left_s)}
    for name in [] if options.no_pages else spent:
        spent[name]["page"] = snakemake(name, options.gpu, "all", output, 600)
    rows, paced = [], []
    for name, times in spent.items():
        about, kernels = rows_of(name, options.gpu, output, times)
        rows.append(about)
        paced += kernels
    write(output / "steps.csv", rows)
    write(output / "paced.csv", paced)
    for each in rows:
        print("; ".join(f"{key} {value}" for key, value in each.items()), flush=True)
    if unfinished := [
        name for name in options.steps if name not in spent or any(code for code, _ in spent[name].values())
    ]:
        sys.exit(f"error: not complete: {', '.join(unfinished)}; see their logs in {output}, then call it again")


def configuration(name: str, gpu: str) -> dict:
    """What is given to Snakemake for a step."""
    workload = {"step": f"{SOURCE}:{name}", "name": name.replace("_", "-")}
    return PROTOCOL | {"gpu": gpu, "workload": workload}


def snakemake(name: str, gpu: str, target: str, output: Path, limit_s: float) -> tuple[int, float]:
    """(exit code, seconds) of a run, ended in order at its limit."""
    path = output / f"{name}.config.json"
    write_json(path, configuration(name, gpu))
    words = [sys.executable, "-m", "snakemake", "--cores", "2", target, "--configfile", "config.yaml", str(path)]
    begin_s = time.monotonic()
    with (output / f"{name}.{target}.log").open("w") as log:
        run = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        try:
            code = run.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGINT)
            try:
                code = run.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                code = run.wait()
    seconds = time.monotonic() - begin_s
    print(f"{name}: {target}, exit code {code}, {seconds:.0f} s", flush=True)
    return code, seconds


def write(path: Path, rows: list[dict]) -> None:
    """Write rows as CSV; their columns are all that any of them has."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for each in rows for key in each)))
        writer.writeheader()
        writer.writerows(rows)


def rows_of(name: str, gpu: str, output: Path, times: dict[str, tuple[int, float]]) -> tuple[dict, list[dict]]:
    """What became of a step, as far as it came: its row, and those of its paced kernels."""
    config = load("config.yaml") | configuration(name, gpu)
    check(config, str(Path(__file__).resolve().parents[2] / "workflow" / "schemas" / "config.schema.yaml"))
    study = plan(config)
    found = {"step": name, "date": datetime.now(UTC).isoformat()[:10]}
    for what, (code, seconds) in times.items():
        found |= {f"{what}_exit_code": code, f"{what}_s": round(seconds)}
    if not (study.step_record and Path(study.step_record).is_file()):
        return found | {"captured": False}, []
    step = steps.read(study.step_record)
    records = [read_json(path) for path in Path(study.folder, "measurements").rglob("r0.json")]
    # those of an earlier capture or protocol may still lie there
    records = [record for record in records if record["run"]["setup"] == study.setup.digest]
    paced = paced_rows(name, step, records)
    temperatures = [each for record in records for window in record["windows"] for each in window["temp_c"]]
    spent = Counter()
    for record in records:
        spent.update(record["run"]["spent_s"])
    found |= {
        **{"gpu": step.device["name"], "board": study.gpu, "torch": step.versions["torch"], "nodes": len(step.nodes)},
        **{"launches": len(step.order), "targets": len(step.targets), "coverage": step.coverage},
        **{"records": len(records), "verdicts": dict(Counter(record["verdict"] for record in records))},
        # each record has put the state back and compared it, as far as it was saved
        **{"restored": not step.state.left_out, "same_bits": step.whole.same_bits},
        **{"lowest_c": min(temperatures, default=None), "highest_c": max(temperatures, default=None)},
        "spent_s": {part: round(seconds, 1) for part, seconds in spent.items()},
    }
    if "page" not in times or times["page"][0] != 0:
        return found, paced  # what lies there is an earlier run's
    tables = Path(study.folder, "tables")
    for table in TABLES:
        if (tables / f"{table}.csv").is_file():
            (output / name).mkdir(exist_ok=True)
            shutil.copyfile(tables / f"{table}.csv", output / name / f"{table}.csv")
    if (tables / "step_check.csv").is_file():
        with (tables / "step_check.csv").open(newline="", encoding="utf-8") as file:
            whole = next(each for each in csv.DictReader(file) if each["section"] == steps.WHOLE)
        found |= {key: whole[key] for key in ("time_ms", "energy_j")}
        # the other way round than in the table: how far each sum is from the whole
        for key, value in whole.items():
            if key.endswith("_difference_percent"):
                found[key.replace("_difference_percent", "_sum_percent")] = 100 * (1 / (1 + float(value) / 100) - 1)
    return found, paced


def paced_rows(name: str, step: steps.Step, records: list[dict]) -> list[dict]:
    """A row a kernel that was to run at its clock of the step, the longest launch first.

    Times and clocks within the step, alone and paced, and the rest after each round of taking_turns launches; rest_us
    is 0 where the kernel has that clock alone.
    """
    alone = {each["kernel"]["name"]: each for each in records if each["kernel"]["study"] == "kernel"}
    rows = []
    for record in records:
        kernel = steps.paced_kernel(record["kernel"]["name"]) if record["kernel"]["study"] == "pass" else ""
        if not kernel or kernel not in alone:
            continue
        target, about, window = step.target(kernel), record["kernel"], record["windows"][0]
        both = [window[part] for part in ("beginning", "with_beginning") if part in window]
        rest_w, with_rest_w = [1e-3 * each["energy_mj"] / each["duration_s"] for each in both] or [None, None]
        rows.append(
            {
                **{"step": name, "kernel": kernel, "launches": target.launches, "trace_us": target.time_us},
                **{"capture_core_mhz": target.core_mhz, "wanted_core_mhz": about["paced_mhz"]},
                **_reached("alone", alone[kernel]),
                **{"taking_turns": target.rotated, "rest_us": about["rest_us"]},
                **{"rest_w": rest_w, "with_rest_w": with_rest_w},
                **_reached("paced", record),
            }
        )
    rows.sort(key=lambda each: -each["trace_us"])
    return [
        {key: round(value, 3) if isinstance(value, float) else value for key, value in each.items()} for each in rows
    ]


def _reached(how: str, record: dict) -> dict:
    summary = record["summary"]
    return {
        f"{how}_us": summary["time_us"],
        f"{how}_w": 1e-3 * summary["power_mw"],
        f"{how}_core_mhz": record["reached"]["core_mhz"],
    }


if __name__ == "__main__":
    asked = parsed()
    with Library():
        pass  # refuses in one line where there is no driver
    main(asked)
