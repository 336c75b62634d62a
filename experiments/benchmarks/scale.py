"""What thousands of targets cost: building the DAG, running it, and finding that nothing is to be done.

Each size is the sweep of the simulated RTX 3080 Ti (target `profile`: a job and a record for every kernel and pass at
every clock pair), run by Snakemake in an empty folder. `plain` is the shipped profile: after each job the scheduler
looks at all that is ready. `sampled` adds `--scheduler-subsample 10`: it looks at ten of them, drawn at random. That is
for simulated GPUs alone: on a real one it would change clocks at almost every job.

    python experiments/benchmarks/scale.py [--steps 210 50 19 15] [--plain 210 50] [--cores 2]

Prints wall and CPU time, and between sizes the exponent of the growth law. Wants a machine that does nothing else.
"""

import argparse
import math
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET_JOBS, TARGET_S = 25_000, 600
# the core grid's step, MHz: 3,168 records (the shipped grid), 10,272, 25,488, 31,872
STEPS = (210, 50, 19, 15)
PLAIN = (210, 50)


def snakemake(folder: Path, step: int, cores: int, *options, plain: bool = False) -> tuple:
    """(wall s, CPU s of all its processes, output)"""
    words = [sys.executable, "-m", "snakemake", "--cores", str(cores), *options]
    if not plain:
        words += ["--scheduler-subsample", "10"]
    words += ["--config", f"grid={{core_mhz: {{step: {step}}}, mem_mhz: all, auto: true}}"]
    words += [
        "native={cpu: 'off', cuda: 'off'}",
        "refine={rounds: 0, gain: 0.5, checks: 2, margin_z: 2}",
        "data_parallel_batches=[]",
        "tensor_parallel_degrees=[]",
        "--",
        "profile",
    ]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stdout[-3000:])
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_s, cpu_s, done.stdout


def clone(folder: Path) -> None:
    for name in ("Snakefile", "config.yaml"):
        shutil.copy2(ROOT / name, folder)
    for name in ("workflow", "profiles", "native", "envs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


def measure(step: int, cores: int, plain: bool) -> dict:
    """One size: {"jobs", "dag", "run", "noop"}, each of the last three (wall s, CPU s)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clone(folder)
        dag = snakemake(folder, step, cores, "--dry-run", "--quiet", "rules", plain=plain)
        jobs = int(re.search(r"^total +(\d+)", dag[2], re.M)[1])
        run = snakemake(folder, step, cores, "--quiet", "all", plain=plain)
        noop = snakemake(folder, step, cores, "--quiet", "all", plain=plain)
        return {"jobs": jobs, "dag": dag[:2], "run": run[:2], "noop": noop[:2]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", nargs="*", type=int, default=STEPS, metavar="MHZ", help="core grids, MHz")
    parser.add_argument(
        "--plain", nargs="*", type=int, default=PLAIN, metavar="MHZ", help="also with the shipped profile alone"
    )
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPU cores, load {os.getloadavg()[0]:.1f} at the start; snakemake --cores {options.cores}")
    print(
        f"{'':>7} {'step':>5} {'jobs':>6} {'DAG wall':>9} {'CPU s':>6} {'run wall':>9} {'CPU s':>7} {'CPU ms/job':>10} "
        f"{'no-op':>6} {'CPU s':>6}   CPU against the size before: jobs, run; exponent"
    )
    found = {}
    for plain, steps in ((True, options.plain), (False, options.steps)):
        before = None
        for step in steps:
            now = found[plain, step] = measure(step, options.cores, plain)
            jobs, (wall_s, cpu_s) = now["jobs"], now["run"]
            line = f"{'plain' if plain else 'sampled':>7} {step:5} {jobs:6} {now['dag'][0]:9.1f} {now['dag'][1]:6.1f} "
            line += f"{wall_s:9.1f} {cpu_s:7.1f} {1e3 * cpu_s / jobs:10.1f} {now['noop'][0]:6.1f} {now['noop'][1]:6.1f}"
            if before:
                more, longer = jobs / before["jobs"], cpu_s / before["run"][1]
                line += f"   {more:.1f}, {longer:.1f}; {math.log(longer) / math.log(more):.2f}"
            print(line, flush=True)
            before = now
    for step in options.steps:
        if (True, step) in found:
            plain, sampled = found[True, step]["run"], found[False, step]["run"]
            wall, cpu = plain[0] / sampled[0], plain[1] / sampled[1]
            print(f"step {step}: sampled is {wall:.1f} times faster (wall) with {cpu:.1f} times less CPU")
    large = [each for (plain, _), each in found.items() if not plain and each["jobs"] >= 0.95 * TARGET_JOBS]
    missed = any(each["run"][0] > TARGET_S * each["jobs"] / TARGET_JOBS for each in large)
    if large:
        print(f"target: {TARGET_JOBS:,} jobs in {TARGET_S} s of wall time: {'MISSED' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
