"""The command that studies what a user has: a table, a GPU, or a training step on one."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from kernel_dvfs import child, jobs, shipped
from kernel_dvfs.cli import answer
from kernel_dvfs.cli.import_table import add_reading, read_table
from kernel_dvfs.gpu import spec
from kernel_dvfs_clocks import package
from kernel_dvfs_clocks.errors import InputError, meant

if TYPE_CHECKING:
    from kernel_dvfs.plan.readiness import Readiness

_TABLES = (".csv", ".parquet", ".pq", ".json")


def add_arguments(parser: ArgumentParser) -> None:
    """Describe the options to an argparse parser."""
    parser.description = (
        "Study what you have. It first says what is here, what is missing and how to get it, and how long it takes; "
        "then it runs. For a GPU it runs the workflow, whose results go to results/."
    )
    parser.epilog = "example: kernel-dvfs study mine.csv; kernel-dvfs study nvml; kernel-dvfs study train.py:make_step"
    parser.add_argument(
        "what",
        metavar="WHAT",
        help="a table (CSV, Parquet, a Kernel Tuner file), nvml[:UUID|INDEX], a simulated GPU by name, or "
        "FILE.py:FUNCTION, a training step (docs/your-step.md)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what is missing and how long it takes")
    parser.add_argument("--gpu", metavar="GPU", help="the GPU that runs the step, if there are several: UUID or index")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="for the results of a table (default: study-NAME)")
    add_reading(parser)


def run(options: Namespace) -> int:
    """Say what the study needs and how long it takes, then run it. Raises InputError, ExceptionGroup of such."""
    what = options.what
    is_step = what.partition(":")[0].endswith(".py")
    is_gpu = what.partition(":")[0] == "nvml" or what in spec.names()
    is_table = not (is_step or is_gpu)
    reading = (options.name, options.settings, options.reference, options.columns, options.only, options.units)
    if not is_table and (options.output or any(reading)):
        raise InputError(f"study {what}: -o and the options for reading a table need a table; leave them out")
    if options.gpu and not is_step:
        raise InputError(f"study {what}: --gpu names the GPU of a training step; leave it out")
    if is_table:
        return _of_table(what, options)
    return _of_gpu(_named(options.gpu) if is_step else what, what if is_step else "", options.dry_run)


def _named(gpu: str | None) -> str:
    """Return the GPU that runs a step, as the configuration names it: what other commands call UUID or index, too."""
    is_whole = not gpu or gpu.partition(":")[0] == "nvml" or gpu in spec.names()
    return gpu or "nvml" if is_whole else f"nvml:{gpu}"


def _of_table(path: str, options: Namespace) -> int:
    """Import a table, choose at each limit of the configuration as shipped, and write the page of the strict choice."""
    if not os.path.isfile(path) and not path.endswith(_TABLES):
        raise InputError(
            f"study {path}: no such table{meant(path, ['nvml', *spec.names()])}; expected a table's file, nvml or "
            f"nvml:INDEX, a simulated GPU ({', '.join(spec.names())}), or FILE.py:FUNCTION"
        )
    if why := package.lacking("tables"):
        raise InputError(why)
    if options.dry_run:
        read_table(path, options)
        answer("takes: seconds; nothing is measured")
        return 0
    # now that the packages are there that these need
    from kernel_dvfs.cli.choose import choose_and_answer
    from kernel_dvfs.plan.asked import relaxed
    from kernel_dvfs.plan.config import load

    folder = options.output or f"study-{os.path.splitext(os.path.basename(path))[0]}"
    profile = os.path.join(folder, "profile.parquet")
    read_table(path, options, profile)
    schedules = {}
    for limit in sorted({0, *load(shipped.CONFIG)["limits_percent"]}):
        schedules[limit] = os.path.join(folder, f"{relaxed(limit)}.json")
        choose_and_answer(profile, schedules[limit], slack_percent=limit)
    page = os.path.join(folder, "report.html")
    jobs.page_of_schedule(profile, schedules[0], page)
    answer(f"written: {folder}/ and the page {page}")
    return 0


def _of_gpu(gpu: str, step: str, is_dry_run: bool) -> int:
    """Run the workflow on a GPU; return its exit code."""
    if package.lacking("tables"):  # the look itself needs those
        raise InputError(package.lacking("workflow"))
    from kernel_dvfs.plan import readiness

    is_real = gpu.partition(":")[0] == "nvml"
    ready = readiness.of_real(gpu, step, not is_dry_run) if is_real else readiness.of_simulated(gpu, step)
    for line in ready.here:
        answer(f"here: {line}")
    if ready.missing:
        sys.stdout.flush()
        raise ExceptionGroup("something is missing", ready.missing)
    for line in ready.takes:
        answer(f"takes: {line}")
    words = _snakemake(ready)
    answer(f"runs: {shlex.join(['snakemake', *words])}")
    if is_dry_run:
        return 0
    sys.stdout.flush()
    # without this folder, where a module of the user's may have the name of another
    code = child.run([sys.executable, "-P", "-m", "snakemake", *words])
    if code == 0 and ready.target == "answer":
        answer(f"the page: {jobs.write_page_so_far(readiness.folder_of(ready))}")
    return code


def _snakemake(ready: Readiness) -> list[str]:
    """Return what Snakemake is told."""
    at, here = shipped.WORKFLOW, os.getcwd()
    elsewhere = ["--snakefile", f"{at}/Snakefile", "--workflow-profile", f"{at}/profiles/default"]
    config = [f"{key}={value}" for key, value in ready.config.items()]
    return [*([] if os.path.samefile(at, here) else elsewhere), "--cores", "1", ready.target, "--config", *config]
