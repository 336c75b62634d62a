"""Snakemake on a reduced study: run once, then asked what it would do again."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# three clock pairs, auto among them: without noise every kernel takes least energy at 1470 and least time at 2100. Two
# fresh repeats, one other batch, degree and tensor-core energy
REDUCED = (
    "grid={core_mhz: [1470, 2100], mem_mhz: [9251], auto: false}",
    "auto_repeats=1",
    "validation_repeats=2",
    "data_parallel_batches=[40, 20]",
    "tensor_parallel_degrees=[1, 2]",
    "tensor_energy_pj=[1.0]",
    "headline_map={tensor_energy_pj: null, gemm_traffic: [1, 4], auto_core_mhz: [1950], points: [2, 2]}",
    "clock_changes={measured: null, latency_s: [0.01], core_stall_s: 0.0001, mem_stall_s: 0.0001, stall_w: null, "
    "swept_stall_s: []}",
    "refine={rounds: 0, gain: 0.5, checks: 2, margin_z: 2}",
    "native={cpu: auto, cuda: 'off', pipeline: 'off'}",  # each clone would compile it
)
FOLDER = Path("results/sim-rtx-3080-ti/gpt3-xl-b40-tp1")
RECORDS = 48 * 3


def command(*targets, config=(), dry=False, options=()) -> list:
    """A snakemake command line for a clone, as a user would type it there."""
    words = [sys.executable, "-m", "snakemake", "--cores", "2", *options]
    if dry:
        words.append("--dry-run")
    # a later value of a key wins
    settings = {each.partition("=")[0]: each for each in (*REDUCED, *config)}.values()
    return [*words, "--config", *settings, "--", *targets]


def clone(directory: Path) -> Path:
    """The files of the repository that a run reads, in a folder of their own."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("Snakefile", "config.yaml"):
        shutil.copy2(ROOT / name, directory)
    for name in ("workflow", "profiles", "native", "envs"):
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    return directory


def snakemake(directory, *targets, check=True, env=None, **more) -> subprocess.CompletedProcess:
    """Run it in a clone; the finished process with all its output in stdout. env: of the process, else this one's."""
    done = subprocess.run(
        command(*targets, **more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory, env=env
    )
    if check:
        assert done.returncode == 0, done.stdout[-4000:]
    return done


def planned(directory, *targets, **more) -> dict:
    """{rule: jobs} that Snakemake would run, the bare target `all` left out; {} where nothing is to be done."""
    said = snakemake(directory, *targets, dry=True, **more).stdout
    block = re.search(r"Job stats:\n.*?\n-+ +-+\n(.*?)\n\n", said, re.S)
    jobs = dict(line.split() for line in block[1].splitlines()) if block else {}
    return {rule: int(count) for rule, count in jobs.items() if rule not in ("all", "total")}
