"""`kernel-dvfs measure records`: which records of a study cannot be used, and why; deletes them on request."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.setup import Setup, read
from kernel_dvfs.measurement.target import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs measure records results/sim-rtx-3080-ti/gpt3-xl-b40-tp1/measurements "
        "--gpu SETUP.json --delete-bad"
    )
    parser.add_argument("folder", help="folder with kernel/, pass/, validation/ and the like; variants/ is next to it")
    parser.add_argument(
        "--gpu", required=True, metavar="SETUP", help="the setup that the sweep should have been measured under"
    )
    parser.add_argument("--delete-bad", action="store_true", help="delete them, so that snakemake measures them again")


def run(options: argparse.Namespace) -> int:
    setup = read(options.gpu)
    # resolved, since the setups and variants are found from its parent, and `.` has none
    folder = Path(options.folder).resolve()
    points = sorted(path for study in ("kernel", "pass") for path in folder.glob(f"{study}/*/*/r*.json"))
    comparisons = sorted(
        [
            path
            for name in ("validation", "validation-*", "locked", "batch-*", "tp-*")
            for path in folder.glob(f"{name}/*.json")
        ]
        + list(folder.parent.glob("variants/*/fresh.json"))
    )
    total = len(points) + len(comparisons)
    if not total:
        raise InputError(f"{options.folder}: holds no records; name a folder 'measurements' with kernel/ and pass/")
    bad = 0
    for check, paths in ((_check_point, points), (_check_comparison, comparisons)):
        for path in paths:
            try:
                check(path, setup, folder)
            except InputError as error:
                bad += 1
                print(error, file=sys.stderr)
                if options.delete_bad:
                    path.unlink()
    print(f"{total} records, {bad} bad{' and deleted' if bad and options.delete_bad else ''}")
    return 2 if bad and not options.delete_bad else 0


def _check_point(path: Path, setup: Setup, folder: Path) -> None:
    study, name, pair = path.parts[-4:-1]
    what = str(path), setup, Target(study, name), parse(pair, "-")
    if not record.read_skipped(*what):
        record.read_point(*what)


def _check_comparison(path: Path, setup: Setup, folder: Path) -> None:
    digest, comparisons = record.read_comparison(str(path))
    own = folder.parent / "setup" / f"{digest}.json"
    if not own.is_file():
        raise InputError(f"record {path}: foreign: its setup {digest} is not in {own.parent}")
    kind, name = path.parent.name, path.stem
    is_validation = kind.startswith("validation")
    if is_validation and digest != setup.digest:
        raise InputError(f"record {path}: foreign: its setup is {digest}, expected {setup.digest}")
    for each in comparisons:
        # validation/repeat-<k>.json holds a repeat, batch-<b>/<kernel>.json a kernel
        found = f"repeat-{each['repeat']}" if is_validation else each["target"]
        if name not in (found, "fresh"):
            raise InputError(f"record {path}: foreign: it holds {found}")
