"""Build sdist and wheel; use the wheel alone, and run the tutorial from the sdist, each in a fresh environment.

    python experiments/benchmarks/release_check.py         # in a fresh environment, packages from the lock: minutes
    python experiments/benchmarks/release_check.py --here  # with the packages of this Python, no tutorial's study

The wheel is the library and its commands: in a folder without the project, with nothing but the packages that it asks
for (less than 300 MB), it runs its demo, imports a table, chooses clocks and writes a page. The sdist is the whole
project: unpacked, the tutorial's study runs in it with the packages of the lock.
"""

import argparse
import csv
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "results/sim-rtx-3080-ti/gpt3-xl-b40-tp1"
# what snakemake, the native build, the tests and the site need
IN_SDIST = (
    *("Snakefile", "setup.py", "config.yaml", "Makefile", "mkdocs.yml", "docs/tutorial.yaml", "envs/requirements.lock"),
    *("workflow/rules/common.smk", "workflow/schemas/config.schema.yaml", "workflow/report/workflow.rst"),
    *("profiles/default/profile.yaml", "profiles/slurm/status.sh", "conftest.py"),
    *("native/CMakeLists.txt", "native/pyproject.toml"),
)
# data that the library reads
IN_WHEEL = (
    *("gpu/specs/rtx_3080_ti.yaml", "gpu/specs/families.yaml", "report/page/templates/"),
    *("shipped/config.yaml", "shipped/config.schema.yaml", "shipped/native/graph/"),
    *("shipped/native/CMakeLists.txt", "shipped/native/pyproject.toml", "shipped/step/step_kernels.csv"),
    *("shipped/Snakefile", "shipped/workflow/rules/common.smk", "shipped/workflow/report/workflow.rst"),
    "shipped/profiles/default/profile.yaml",
    "kernel_dvfs_serving/traces/",
)
# {extra: what the wheel and all that it asks for may take, MB}, an empty environment left out
MOST_MB = {"": 15, "[tables]": 300}
# one of a simulated GPU, as on a node
POINT = ("--gpu", "rtx_3080_ti", "--target", "forward_gelu", "--clocks", "1470,auto")
# what Snakemake shows of a run, and what orders its jobs; it finds them among installed packages
PLUGINS = ("snakemake_logger_plugin_kernel_dvfs", "snakemake_scheduler_plugin_kernel_dvfs")
# two kernels at three settings, made up: the second waits for memory
TABLE = """gpu,kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto
example,product,,,10.0,3000,1
example,product,1400,5000,11.0,2500,0
example,product,1000,5000,14.0,2300,0
example,norm,,,1.0,250,1
example,norm,1400,5000,1.0,200,0
example,norm,1000,5000,1.0,150,0
"""
# what makes sdist or wheel, by the backend's own hooks: no further package
HOOK = "from setuptools import build_meta as b; import sys; print(b.build_{}(sys.argv[1]))"


def say(text: str) -> None:
    print(f"release check: {text}", flush=True)


def call(*words, cwd=None, env=None) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(
            f"error: {' '.join(map(str, words))}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}"
        )
    return done.stdout


def build(python: Path, folder: Path) -> tuple:
    """(sdist, wheel), the wheel made from the sdist, as an index's users would get it."""
    sdist = folder / call(python, "-c", HOOK.format("sdist"), folder, cwd=copy_of(folder)).splitlines()[-1]
    shutil.unpack_archive(sdist, folder)
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    wheel = folder / call(python, "-c", HOOK.format("wheel"), folder, cwd=unpacked).splitlines()[-1]
    return unpacked, wheel


def copy_of(folder: Path) -> Path:
    """The project as committed, or as it lies where there is no git: building leaves files behind."""
    copy = folder / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    names = listed.stdout.split("\0")[:-1] if listed.returncode == 0 else _files()
    for name in names:
        target = copy / name
        if (ROOT / name).is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to((ROOT / name).readlink())
        elif (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
            target.chmod((ROOT / name).stat().st_mode)
    return copy


def _files() -> list:
    own = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return [str(path) for path in own if path.parts[0] not in (".venv", ".git", ".snakemake", "results", "logs")]


def check_contents(unpacked: Path, wheel: Path) -> None:
    missing = [name for name in IN_SDIST if not (unpacked / name).is_file()]
    if missing:
        sys.exit(f"error: the sdist lacks {', '.join(missing)}; name them in MANIFEST.in")
    names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in IN_WHEEL if not any(each.startswith((f"kernel_dvfs/{name}", name)) for each in names)]
    if missing:
        sys.exit(f"error: the wheel lacks {', '.join(missing)}; name them in pyproject.toml, package-data")
    foreign = {name.split("/")[0] for name in names if not name.startswith(("kernel_dvfs", *PLUGINS))}
    if foreign:
        sys.exit(f"error: the wheel holds {', '.join(sorted(foreign))} beside the library")


def check_core(wheel: Path, folder: Path) -> None:
    """The wheel holds the search for clocks of pipelines, compiled, is for its platform alone, and finds it."""
    if wheel.name.endswith("-none-any.whl"):
        sys.exit(f"error: {wheel.name} holds no compiled core; see setup.py")
    made = folder / "with-core"
    shutil.unpack_archive(wheel, made, "zip")
    ask = "from kernel_dvfs_pipeline import rounding; print(rounding.core().__file__)"
    found = call(sys.executable, "-c", ask, cwd=made, env=os.environ | {"PYTHONPATH": str(made)})
    if not found.startswith(str(made / "kernel_dvfs_pipeline")):
        sys.exit(f"error: {wheel.name} does not find its core but {found.strip()}")
    say(f"{wheel.name} ({wheel.stat().st_size / 1e3:.0f} kB) holds the compiled core")


def environment(folder: Path, wheel: Path, here: bool) -> Path:
    """A fresh environment with the wheel; its Python. here: it sees this Python's packages."""
    made = folder / "venv"
    venv.create(made, with_pip=True)
    python = made / "bin/python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if here:
        own = next(path for path in map(Path, sys.path) if path.name == "site-packages")
        site = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        (site / "outer.pth").write_text(f"{own}\n")
    else:
        call(*pip, "--require-hashes", "-r", ROOT / "envs/requirements.lock")
    call(*pip, "--no-deps", "--no-index", wheel)
    return python


def check_wheel(python: Path, folder: Path) -> None:
    """Where nothing of the project lies: the command is there, and chooses clocks from a table."""
    empty = folder / "empty"
    empty.mkdir()
    command = python.parent / "kernel-dvfs"
    version = call(command, "--version", cwd=empty).split()[-1]
    where = call(python, "-c", "import kernel_dvfs; print(kernel_dvfs.__file__)", cwd=empty).strip()
    if not Path(where).is_relative_to(python.parents[1]):
        sys.exit(f"error: {where} is imported, not the installed wheel")
    (empty / "mine.csv").write_text(TABLE)
    call(command, "import", "mine.csv", "-o", "p.parquet", cwd=empty)
    options = ["--scope", "global", "--objective", "waste", "--slack", "0", "-o", "s.json"]
    call(command, "choose", "p.parquet", *options, cwd=empty)
    schedule = json.loads((empty / "s.json").read_text())
    saved = schedule["energy_change_percent"]
    # the norm at 1000 MHz saves 100 of 3250 mJ, the product can give nothing
    if abs(saved + 100 * 100 / 3250) > 1e-6:
        sys.exit(f"error: the wheel's choice from a table saves {-saved} %, not {100 * 100 / 3250} %")
    devices = call(command, "devices", cwd=empty)
    if "rtx_3080_ti" not in devices:
        sys.exit("error: the wheel's kernel-dvfs devices names no simulated GPU")
    # options that take the names of installed plugins only
    call(python, "-m", "snakemake", "--logger=kernel-dvfs", "--scheduler=kernel-dvfs", "--version", cwd=empty)
    planned = call(command, "study", "h200_sxm", "--dry-run", cwd=empty).splitlines()[-1]
    call(python, "-m", "snakemake", "-n", "--quiet", "rules", *shlex.split(planned)[2:], cwd=empty)
    say(f"wheel {version}: imports a table, chooses clocks, knows its simulated GPUs, plans the study of one")


def check_alone(folder: Path, wheel: Path) -> None:
    """The wheel with nothing but what it asks for, where nothing of the project lies: what a node needs. Then with the
    extra `tables`: clocks from a table, and a page."""
    made, empty = folder / "alone", folder / "nowhere"
    venv.create(made, with_pip=True)
    empty.mkdir()
    python, command = made / "bin/python", made / "bin/kernel-dvfs"
    pins = (line.removesuffix("\\") for line in (ROOT / "envs/requirements.lock").read_text("utf-8").splitlines())
    (folder / "pins.txt").write_text("".join(f"{pin}\n" for pin in pins if pin[:1].isalnum()))
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", folder / "pins.txt"]
    empty_mb, told = size_mb(made), []
    for extra, most_mb in MOST_MB.items():
        began = time.monotonic()
        call(*pip, f"{wheel}{extra}")
        own_mb, installed_s = size_mb(made) - empty_mb, time.monotonic() - began
        told.append(f"kernel-dvfs{extra}: {own_mb:.0f} MB with all that it asks for, installed in {installed_s:.0f} s")
        if own_mb > most_mb:
            sys.exit(f"error: {told[-1]}; more than {most_mb} MB")
        if not extra:
            call(command, "measure", *POINT, "-o", "r0.json", cwd=empty)
            call(command, "apply", "--help", cwd=empty)
    began = time.monotonic()
    said = call(command, "demo", cwd=empty)
    took_s = time.monotonic() - began
    if "simulated" not in said or not (empty / "demo/report.html").is_file():
        sys.exit(f"error: the wheel's demo leaves no page: {said}")
    call(command, "demo", "--step", "-o", "step", cwd=empty)
    if "25 of its 122 kernels" not in (empty / "step/report.html").read_text("utf-8"):
        sys.exit("error: the wheel's measured step is not on its page")
    (empty / "mine.csv").write_text(TABLE)
    answer = call(command, "study", "mine.csv", cwd=empty)
    if "less energy" not in answer or not (empty / "study-mine/report.html").is_file():
        sys.exit(f"error: the wheel alone chooses and reports nothing: {answer}")
    for line in told:
        say(line)
    say(f"alone it measures a point; with [tables] demo takes {took_s:.0f} s, and a table is studied")


def size_mb(folder: Path) -> float:
    """Of an environment."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def check_tutorial(python: Path, unpacked: Path) -> None:
    """The tutorial's study in the unpacked sdist."""
    words = [python, "-m", "snakemake", "--cores", "2", "all", "--configfile", "docs/tutorial.yaml"]
    call(*words, "--config", "native={cpu: off, cuda: off}", cwd=unpacked)
    with open(unpacked / FOLDER / "tables/headline.csv", newline="") as file:
        first = next(csv.DictReader(file))
    printed = f"{float(first['fresh_energy_change_percent']):.2f}"
    page = (unpacked / "docs/tutorial.md").read_text("utf-8")
    if f"| {first['schedule']} |" not in page or f"| {printed} |" not in page:
        sys.exit(f"error: the sdist's tutorial gives {printed} % of energy, which docs/tutorial.md does not say")
    say(f"sdist: the tutorial's study gives {printed} % of energy (simulated), as printed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--here", action="store_true", help="with this Python's packages, without the tutorial's study")
    options = parser.parse_args()
    # or this checkout would be imported, not the wheel
    os.environ.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory(prefix="kernel-dvfs-release-") as name:
        folder = Path(name)
        builder = folder / "builder"
        venv.create(builder, with_pip=True)
        pip = [builder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        call(*pip, "wheel", *tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"])
        unpacked, wheel = build(builder / "bin/python", folder)
        check_contents(unpacked, wheel)
        size = wheel.stat().st_size
        say(f"built {unpacked.name}.tar.gz and {wheel.name} ({size / 1e3:.0f} kB); both hold what they need")
        check_core(wheel, folder)
        python = environment(folder, wheel, options.here)
        check_wheel(python, folder)
        if not options.here:
            check_alone(folder, wheel)
            check_tutorial(python, unpacked)


if __name__ == "__main__":
    main()
