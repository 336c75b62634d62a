"""What the default study costs beside a null workflow with as many jobs, and what an up-to-date rerun costs.

    python experiments/benchmarks/pipeline.py [--config KEY=VALUE ...]

Both sides run in one go, in empty folders, with the shipped default profile and one core. The null workflow's jobs
each run `python3 -c "print(1)"` with the same Python. Targets: ratio <= 1.3, wall <= 4 min, rerun <= 6 s, largest
process <= 600 MB.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NULL = """
rule all:
    input: expand("out/{{i}}.txt", i=range({jobs}))

rule one:
    output: "out/{{i}}.txt"
    shell: 'python3 -c "print(1)" > {{output}}'
"""


def snakemake(directory: Path, snakefile: Path, config: list, *options) -> tuple:
    """(wall s, output) of one run."""
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--directory", str(directory)]
    command += ["--snakefile", str(snakefile), "--workflow-profile", str(ROOT / "profiles/default")]
    command += [*options, *(["--config", *config] if config else [])]
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)} failed:\n{done.stdout[-3000:]}")
    return time.perf_counter() - began, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", nargs="*", default=[], help="configuration of the study, e.g. a smaller grid")
    config = parser.parse_args().config
    with tempfile.TemporaryDirectory() as folder:
        study, null = Path(folder, "study"), Path(folder, "null")
        study.mkdir()
        null.mkdir()
        _, said = snakemake(study, ROOT / "Snakefile", config, "--dry-run")
        jobs = int(re.findall(r"^total +(\d+)", said, re.M)[-1])
        wall_s, said = snakemake(study, ROOT / "Snakefile", config)
        largest_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        again_s, said = snakemake(study, ROOT / "Snakefile", config)
        assert "Nothing to be done" in said, said[-2000:]
        (null / "Snakefile").write_text(NULL.format(jobs=jobs - 1))
        null_s, _ = snakemake(null, null / "Snakefile", [])
    print(f"jobs                     {jobs}")
    print(f"study, wall              {wall_s:8.1f} s   {1000 * wall_s / jobs:6.1f} ms a job   (target <= 240 s)")
    print(f"null workflow, wall      {null_s:8.1f} s   {1000 * null_s / jobs:6.1f} ms a job")
    print(f"ratio study / null       {wall_s / null_s:8.2f}                     (target <= 1.3)")
    print(f"up-to-date rerun         {again_s:8.1f} s   = {again_s / wall_s:.3f} of the study (target <= 6 s)")
    print(f"largest process          {largest_mb:8.0f} MB                    (target <= 600 MB)")


if __name__ == "__main__":
    main()
