"""What a study costs beside a null workflow with as many jobs: the default study, and sweeps of up to 80,000 targets.

    python experiments/benchmarks/pipeline.py [study | scale] [--against CHECKOUT] [--steps 210 50 19] [--planned 1000]

All sides run in one go, in empty folders, by this Python, with the shipped profile and one core.

study  the default study; null workflows whose jobs do nothing, once in a process each (`python3 -c "print(1)"`) and
       once within Snakemake; the study again when there is nothing to do, and with one record deleted; where its time
       went, by Snakemake's own notes. --against: the study of another checkout beside it.
scale  the sweep of the simulated RTX 3080 Ti (target `profile`: a job and a record for every kernel and pass at every
       clock pair) on core grids of --steps MHz: planned, run once, and again, beside a null workflow within Snakemake.
       Every clock that the board has, with --planned repeats of auto (1,000: the most that one study may have), is only
       planned. Between sizes the exponent of the growth law.

Wants a machine that does nothing else.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
NULL = """
rule all:
    input: expand("out/{{i}}.txt", i=range({jobs}))

rule one:
    output: "out/{{i}}.txt"
    {does}
"""
PROCESSES = "shell: 'python3 -c \"print(1)\" > {output}'"
WITHIN = """threads: 0
    run: open(output[0], "w").close()"""
RECORD = "results/sim-rtx-3080-ti/gpt3-xl-b40-tp1/measurements/kernel/forward_gelu/1470-9251/r0.json"
STUDY_S, AGAIN_S, LARGEST_MB, RATIO = 150, 6, 600, 1.5
# core grids, MHz: 3,168 records (the shipped grid), 10,272 and 25,488; every clock; repeats of auto
STEPS, EVERY, PLANNED = (210, 50, 19), 15, 1000
PLAN = ("--dry-run", "--quiet", "rules")


class Took(NamedTuple):
    """What one run of Snakemake took, and said."""

    wall_s: float
    cpu_s: float  # of all its processes
    largest_mb: float  # of them
    said: str


def snakemake(folder: Path, target: str = "all", options=(), config=()) -> Took:
    """Run it in a folder that has a Snakefile and profiles. Ends the program where it fails."""
    words = [sys.executable, "-m", "snakemake", "--cores", "1", *options]
    words += [*(["--config", *config] if config else []), "--", target]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # the library and the plugins of this folder's checkout, not of this Python's
    environment = dict(os.environ, PATH=path, PYTHONPATH=str(folder / "workflow"))
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        run = subprocess.Popen(words, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read()
    if run.returncode:
        sys.exit(f"error: {' '.join(words)} failed:\n{said[-3000:]}")
    return Took(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said)


def clone(checkout: Path, folder: Path) -> Path:
    """What a run reads of a checkout, in a new folder."""
    folder.mkdir()
    for name in ("Snakefile", "config.yaml"):
        shutil.copy2(checkout / name, folder)
    for name in ("workflow", "profiles", "native", "envs"):
        shutil.copytree(checkout / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def null(folder: Path, jobs: int, does: str) -> Took:
    """A null workflow, run by this checkout's profile and plugins."""
    clone(ROOT, folder)
    (folder / "Snakefile").write_text(NULL.format(jobs=jobs, does=does))
    return snakemake(folder)


def planned(said: str) -> int:
    """Jobs, by the last table of a dry run."""
    return int(re.findall(r"^total +(\d+)", said, re.M)[-1])


def finished(said: str) -> int:
    """Jobs, by the last line that counts them."""
    return int(re.findall(r"([\d,]+) of [\d,]+ jobs", said)[-1].replace(",", ""))


def phases(folder: Path) -> list[tuple[str, int, float, float]]:
    """[(rule, jobs, seconds from its first start to its last end, seconds that no earlier rule covers)], by start."""
    spans = defaultdict(set)
    for note in (folder / ".snakemake/metadata").rglob("*"):
        if note.is_file():
            content = json.loads(note.read_text())
            # all sessions and clock pairs of a rule in one row
            rule = re.sub(r"_\d+.*", "", content["rule"])
            spans[rule].add((content["starttime"], content["endtime"], *content["log"]))
    rows, covered = [], 0.0
    for rule, jobs in sorted(spans.items(), key=lambda item: min(item[1])):
        begin, end = min(job[0] for job in jobs), max(job[1] for job in jobs)
        rows.append((rule, len(jobs), end - begin, max(0.0, end - max(begin, covered))))
        covered = max(covered, end)
    return rows


def study(against: Path | None, folder: Path) -> None:
    """The default study beside null workflows, and beside another checkout's."""
    here = clone(ROOT, folder / "study")
    run = snakemake(here)
    jobs, rows = finished(run.said), phases(here)
    again = snakemake(here)
    assert "Nothing to be done" in again.said, again.said[-2000:]
    (here / RECORD).unlink()
    mended = snakemake(here)
    sides = {f"null, {jobs} processes": (PROCESSES, RATIO), f"null, {jobs} within Snakemake": (WITHIN, None)}
    print(f"study, {jobs} jobs: {told(run)}; {verdict(run.wall_s, STUDY_S, 's')}")
    for number, (name, (does, most)) in enumerate(sides.items()):
        other = null(folder / f"null-{number}", jobs - 1, does)
        ratio = run.wall_s / other.wall_s
        print(f"{name}: {told(other)}; the study takes {verdict(ratio, most, 'times as long')}")
    print(f"nothing to do: {told(again)}; {verdict(again.wall_s, AGAIN_S, 's')}")
    print(f"one record deleted, {finished(mended.said)} jobs: {told(mended)}")
    print(f"largest process: {verdict(run.largest_mb, LARGEST_MB, 'MB')}")
    if against:
        other = snakemake(clone(against, folder / "other"))
        ratio = other.wall_s / run.wall_s
        print(f"the study of the other checkout: {told(other)}; {ratio:.1f} times as long as this one's")
        print("\nof the other checkout:")
        tell(phases(folder / "other"))
        print("\nof this one:")
    tell(rows)


def told(took: Took) -> str:
    return f"{took.wall_s:.1f} s, {took.cpu_s:.1f} CPU s, {took.largest_mb:.0f} MB"


def verdict(value: float, most: float | None, unit: str) -> str:
    """A number with its target, and whether it is met; None: it has none."""
    words = f"{value:.2f}" if value < 10 else f"{value:.0f}"
    return f"{words} {unit}" + ("" if most is None else f" (target {most}: {'met' if value <= most else 'MISSED'})")


def tell(rows: list) -> None:
    print(f"{'rule':20}{'jobs':>6}{'span s':>9}{'own s':>8}   own: covered by no rule that began earlier")
    for rule, jobs, span_s, own_s in rows:
        print(f"{rule:20}{jobs:6}{span_s:9.1f}{own_s:8.1f}")


def grid(step: int) -> tuple[str, ...]:
    """Configuration of a sweep and nothing after it."""
    return (
        f"grid={{core_mhz: {{step: {step}}}, mem_mhz: all, auto: true}}",
        "refine={windows: 0, hours: null, over_percent: 10}",
        "data_parallel_batches=[]",
        "tensor_parallel_degrees=[]",
    )


def scale(steps: list[int], only_planned: int, folder: Path) -> None:
    """Sweeps of growing size beside null workflows within Snakemake."""
    print(f"{'':10}{'jobs':>8}{'wall s':>9}{'CPU s':>9}{'MB':>7}{'ms a job':>10}   growth of CPU s with jobs, exponent")
    before: dict[str, tuple[int, float]] = {}

    def row(name: str, jobs: int, took: Took) -> None:
        line = f"{name:10}{jobs:8}{took.wall_s:9.1f}{took.cpu_s:9.1f}{took.largest_mb:7.0f}"
        line += f"{1000 * took.wall_s / jobs:10.2f}"
        if name in before:
            fewer, less_s = before[name]
            line += f"{math.log(took.cpu_s / less_s) / math.log(jobs / fewer):11.2f}"
        print(line, flush=True)
        before[name] = jobs, took.cpu_s

    for step in steps:
        here = clone(ROOT, folder / str(step))
        plan = snakemake(here, "profile", PLAN, grid(step))
        jobs = planned(plan.said)
        row("planned", jobs, plan)
        run = snakemake(here, "profile", config=grid(step))
        row("run", jobs, run)
        row("again", jobs, snakemake(here, "profile", config=grid(step)))
        other = null(folder / f"null-{step}", jobs - 1, WITHIN)
        row("null", jobs, other)
        print(f"{'':10}the run takes {run.wall_s / other.wall_s:.2f} times as long as the null workflow", flush=True)
        shutil.rmtree(here)
    if only_planned:
        every = (*grid(EVERY), f"auto_repeats={only_planned}")
        plan = snakemake(clone(ROOT, folder / "planned"), "profile", PLAN, every)
        row("planned", planned(plan.said), plan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("study", "scale"), default="study")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout, run beside this one")
    parser.add_argument("--steps", nargs="*", type=int, default=STEPS, metavar="MHZ", help="core grids of scale")
    parser.add_argument("--planned", type=int, default=PLANNED, metavar="N", help="repeats of what is only planned")
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPU cores, load {os.getloadavg()[0]:.1f} at the start", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "study":
            study(options.against, Path(folder))
        else:
            scale(options.steps, options.planned, Path(folder))


if __name__ == "__main__":
    main()
