"""A study in so many minutes of a large captured step, in real time, on a board of the fake NVML.

The step is planted: kernels of the simulated H200 whose times spread as those of an H100's ResNet-50 did (11 % of 509
took 60 % of the energy). Capturing, opening and preparing take as long as they did there, by sleeping; windows, clocks
that settle, jobs and Snakemake take what they take. What is asked: is it done within 1.2 times its minutes, is 95 % of
the energy measured, and was what it said to be left right within a fifth, at every minute?

    python experiments/benchmarks/step_in_minutes.py --minutes 10 --kernels 400 -o step_in_minutes.txt
"""

import argparse
import csv
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/workflow"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/fakenvml"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow"))

import fake
from reduced_study import clone

from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.forecast import settled
from kernel_dvfs.gpu.kernel import LaunchWork
from kernel_dvfs.workload import step as steps
from kernel_dvfs.workload.step_workload import work_of

ROOT = Path(__file__).resolve().parents[2]
# as an H100 took for the ResNet-50: capture, opening the step to measure it, preparing a kernel; and clocks that settle
# later than the fake's, as an H200's did
CAPTURE_S, OPENING_S, PREPARE_S = 77.0, 25.0, (0.3, 0.9)
FOLDER = "results/simulated-h200-on-a-fake-nvml-fa4e0000/step-train-make-step"
# appended to the clone's own modules: what a GPU would take
CAPTURING = f"""

def capture(source, name="", results_dir="results", say=print, keep="", share=False):
    time.sleep({CAPTURE_S})
    return steps.read("captured.json")
"""
LOADS = f"""

import random, time
_made, _prepared = SimulatedLoads.__init__, SimulatedLoads.prepare

def _opens(self, nvml, uuid):
    time.sleep({OPENING_S})
    _made(self, nvml, uuid)

def _prepares(self, setup, target):
    if getattr(self, "_last", None) != target:  # it is asked for twice a point, and kept
        time.sleep(random.Random(target.name).uniform(*{PREPARE_S}))
    self._last = target
    return _prepared(self, setup, target)

SimulatedLoads.__init__, SimulatedLoads.prepare = _opens, _prepares
"""
_LEFT = re.compile(r"now \w+ \(about (.*?) left\)")
_UNITS = {"min": 60, "s": 1, "h": 3600}


def planted(kernels: int, seed: int) -> tuple[steps.Step, dict[str, float]]:
    """A step of so many kernels, and the energy of each in one step, J, by the simulated board."""
    step = steps.read(ROOT / "tests/workload/steps/hand_made.json")
    draw, spec = random.Random(seed), gpu_spec.resolve("h200_sxm")
    like = {each.section: each for each in step.targets if each.repeatable != "no" and each.kind == "kernel"}
    targets, energies = [], {}
    for number in range(kernels):
        section = ("forward", "backward", "optimiser")[3 * number // kernels]
        time_us = draw.lognormvariate(2.5, 1.48)
        is_product = draw.random() < 0.4
        target = replace(
            like[section],
            id=f"k{number}",
            launches=1,
            flop=6e8 * time_us if is_product else None,
            byte=1e6 * time_us if is_product else 3.8e6 * time_us,
            function="gemm" if is_product else "vectorized_elementwise_kernel",
            operation="aten::mm" if is_product else "aten::add",
            repeatable="yes",
            reason="",
            moved_byte=0,
            own=(),
        )
        state = settled(spec, [(LaunchWork(*work_of(target)), 1)])
        targets.append(replace(target, time_us=1e6 * state.time_s, alone_us=1e6 * state.time_s, time_sd_us=None))
        energies[target.id] = state.time_s * state.power_w
    order = tuple(range(kernels))
    whole = replace(step.whole, overlapped=(), loop_us=None, loop_j=None, graph_us=None, graph_j=None)
    return replace(step, targets=tuple(targets), order=order, nodes=order, whole=whole), energies


def seconds_of(text: str) -> int:
    """`2 min 10 s` in s."""
    words = text.split()
    return sum(int(count) * _UNITS[unit] for count, unit in zip(words[::2], words[1::2]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kernels", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", required=True, help="the report, added to")
    options = parser.parse_args()
    step, energies = planted(options.kernels, options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = fake.build(folder)
        boards = fake.Boards(library, folder / "boards.state", "h200", time="real")
        directory = clone(folder / "clone")
        shutil.copy2(ROOT / "tests/fakenvml/simulated_load.py", directory)
        for path, text in (("simulated_load.py", LOADS), ("workflow/kernel_dvfs_step/capturing.py", CAPTURING)):
            with (directory / path).open("a", encoding="utf-8") as file:
                file.write(text)
        steps.write(directory / "captured.json", step)
        (directory / "train.py").write_text("def make_step(): ...\n", encoding="utf-8")
        fake.build_record(directory, directory / "simulated_load.py", source_sha256="planted")
        (folder / "locks").mkdir()
        environment = boards.environment(
            KERNEL_DVFS_LOCK_DIR=str(folder / "locks"), KERNEL_DVFS_TEST_LOAD="simulated_load.json"
        )
        words = [sys.executable, "-m", "snakemake", "--cores", "1", "all", "--config", "gpu=nvml:0", "clocks=auto-only"]
        words += [f"minutes={options.minutes:g}", "workload=step:train.py:make_step"]
        began_s, said = time.monotonic(), []
        run = subprocess.Popen(
            words, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert run.stdout
        for line in run.stdout:
            said.append((time.monotonic() - began_s, line.rstrip()))
            print(f"{said[-1][0]:6.1f} s  {said[-1][1]}", flush=True)
        code, whole_s = run.wait(), time.monotonic() - began_s
        if code:
            sys.exit(f"error: the study ended with exit code {code}")
        measured = [path.parents[1] for path in (directory / FOLDER).glob("measurements/kernel/*/*/r0.json")]
        ended_s = max(path.stat().st_mtime for path in (directory / FOLDER).glob("measurements/*/*/*/r0.json"))
        ended_s += time.monotonic() - time.time() - began_s
        setup = json.loads(next((directory / FOLDER / "setup").iterdir()).read_text())["measurement"]
        with (directory / FOLDER / "tables/step_totals.csv").open(newline="") as file:
            totals = {row["step"]: row for row in csv.DictReader(line for line in file if not line.startswith("#"))}
    share = sum(energies[path.name] for path in measured) / sum(energies.values())
    told = float(totals["sum of its kernels"]["energy_j"]) + float(
        totals.get("the others, not measured", {}).get("energy_j") or 0
    )
    lines = [
        f"minutes={options.minutes:g}, {options.kernels} kernels planted (seed {options.seed}), in real time on the "
        "fake NVML, the simulated H200's kernels:",
        f"{whole_s:.0f} s in all, capture ({CAPTURE_S:.0f} s) and page included; {len(measured)} kernels measured in "
        f"windows of {setup['window_s']:g} s: {100 * share:.2f} % of the planted energy",
        f"all kernels as the page has them: {told:.4f} J, planted {sum(energies.values()):.4f} J "
        f"({100 * (told / sum(energies.values()) - 1):+.2f} %)",
    ]
    for at_s, line in said:
        if found := _LEFT.search(line):
            left_s, was_s = seconds_of(found[1]), ended_s - at_s
            lines.append(
                f"at {at_s:.0f} s: about {found[1]} left, {was_s:.0f} s were ({100 * (left_s / was_s - 1):+.0f} %)"
            )
    with Path(options.output).open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n\n")
    print("\n".join(lines))


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
