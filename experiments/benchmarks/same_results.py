"""Do two versions of the project give the same results? Quick studies by each, compared byte by byte.

Runs four small studies (simulated, table, pipeline, serving) in copies of two checkouts and prints, for each study, how
many files of results/ are equal and which are not; also jobs that only one of the two plans. A study of a real GPU is
left out: its records hold the time of day. So does the newest date on a page, and what a solver took in the serving
study's experiments: such files differ between two runs of one version as well.

    git clone . /tmp/before && git -C /tmp/before checkout BASE
    python experiments/benchmarks/same_results.py /tmp/before .
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from compare_results import checksums, tell

_NO_BUILD = "native={cpu: 'off', cuda: 'off', pipeline: 'off'}"
_TABLE = """gpu,kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto
X,stream,,,1.00,300,1
X,stream,2000,9000,1.00,300,0
X,stream,1000,9000,1.02,200,0
X,compute,,,2.00,700,1
X,compute,2000,9000,2.00,690,0
X,compute,2000,5000,1.97,660,0
X,compute,1000,5000,3.90,500,0
"""
_TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{second},{200 + second},50\n" for second in range(60))


class Study(NamedTuple):
    """A quick study."""

    target: str
    config: tuple[str, ...]
    given: str = ""  # content of mine.csv


STUDIES = {
    "simulated": Study(
        "all",
        (
            "grid={core_mhz: [1470, 2100], mem_mhz: [9251], auto: true}",
            *("auto_repeats=3", "validation_repeats=3", "limits_percent=[1]", "tensor_energy_pj=[1.0]"),
            *("data_parallel_batches=[40, 20]", "tensor_parallel_degrees=[1, 2]"),
            "clock_changes={measured: null, latency_s: [0.01], core_stall_s: 0.0001, mem_stall_s: 0.0001, "
            "stall_w: null, swept_stall_s: [0]}",
            "refine={windows: 3000, hours: null, over_percent: 10}",
        ),
    ),
    "table": Study("all", ("gpu={kind: table, path: mine.csv}",), _TABLE),
    "pipeline": Study(
        "pipeline",
        (
            "pipeline={model: gpt3-125m, batch: 8, tensor_parallel: 2, stages: 4, core_step_mhz: 200, "
            "microbatches: [4], unit_time_s: 0.0001, kernels: 10, straggler: [1.2], switch_latency_s: [0, 0.001]}",
        ),
    ),
    "serving": Study(
        "serving",
        ("serving={degrees: [8], core_mhz: [1200, 1980], requests: 40, trace: mine.csv, servers: 2, pools: 2}",),
        _TRACE,
    ),
}


def results(checkout: Path, folder: Path, study: Study) -> tuple[dict[str, str], dict[str, str]]:
    """({file: SHA-256} of what a study leaves in results/, {rule: jobs} that are planned for it)."""
    for name in ("Snakefile", "config.yaml"):
        shutil.copy2(checkout / name, folder)
    for name in ("workflow", "profiles", "native", "envs"):
        shutil.copytree(checkout / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "mine.csv").write_text(study.given)
    words = [sys.executable, "-m", "snakemake", "--cores", str(os.cpu_count())]
    asked = ["--config", *study.config, _NO_BUILD, "--", study.target]
    about = {"cwd": folder, "env": os.environ | {"PYTHONPATH": str(folder / "workflow")}, "text": True}
    planned = subprocess.run([*words, "-n", *asked], capture_output=True, **about).stdout
    done = subprocess.run([*words, *asked], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **about)
    if done.returncode:
        sys.exit(f"error: {checkout}: {study.target} failed:\n{done.stdout[-2000:]}")
    jobs = re.search(r"Job stats:\n.*?\n-+ +-+\n(.*?)\n\n", planned, re.S)
    return checksums(folder / "results"), dict(line.split() for line in jobs[1].splitlines()) if jobs else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="another")
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"of {', '.join(STUDIES)} (default: all)")
    options = parser.parse_args()
    for name in options.studies or STUDIES:
        if name not in STUDIES:
            parser.error(f"no study '{name}'; there are {', '.join(STUDIES)}")
        found = []
        for checkout in (options.before.resolve(), options.after.resolve()):
            with TemporaryDirectory() as folder:
                found.append(results(checkout, Path(folder), STUDIES[name]))
        (before, jobs_before), (after, jobs_after) = found
        print(f"{name}: ", end="")
        tell(before, after)
        for rule, count in sorted({*jobs_before.items()} ^ {*jobs_after.items()}):
            print(f"  jobs {'before' if jobs_before.get(rule) == count else 'after'}: {rule} {count}")


if __name__ == "__main__":
    main()
