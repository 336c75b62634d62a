"""`kernel-dvfs measure records`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_dvfs.measurement import record, visit
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import parse as parse_pair
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs.measurement.setup import Setup


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs measure records results/sim-rtx-3080-ti/gpt3-xl-b40-tp1/measurements "
        "--gpu SETUP.json --delete-bad"
    )
    parser.add_argument("folder", help="measurements/ of a study")
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="what they should have been measured under")
    parser.add_argument("--delete-bad", action="store_true", help="delete them, so that snakemake measures them again")


def run(options: Namespace) -> int:
    setup = read(options.gpu)
    # resolved, since the setups and variants are found from its parent, and `.` has none
    folder = Path(options.folder).resolve()
    points = sorted(path for study in ("kernel", "pass") for path in folder.glob(f"{study}/*/*/r*.json"))
    comparisons = sorted(
        [path for name in ("validation*", "locked-*", "batch-*", "tp-*") for path in folder.glob(f"{name}/**/*.json")]
        + list(folder.parent.glob("variants/*/fresh.json"))
    )
    visited = sorted(folder.glob("visit/*/*.json"))
    checks = [
        *((_check_point, path) for path in points),
        *((_check_visit, path) for path in visited),
        *((_check_comparison, path) for path in comparisons),
    ]
    total = len(checks)
    if not total:
        raise InputError(
            f"{options.folder}: holds no records; name a folder 'measurements' with visit/, or kernel/ and pass/"
        )
    bad = 0
    for check, path in checks:
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
    what = str(path), setup, MeasurementTarget(study, name), parse_pair(pair, "-")
    record.read_point(*what)


def _check_visit(path: Path, setup: Setup, folder: Path) -> None:
    visited = visit.read_record(str(path))
    if visited["run"]["setup"] != setup.digest:
        raise InputError(f"record {path}: foreign: its setup is {visited['run']['setup']}, expected {setup.digest}")
    if folder / visit.path_of(visited) != path:
        raise InputError(f"record {path}: foreign: it is {visit.path_of(visited)}")


def _check_comparison(path: Path, setup: Setup, folder: Path) -> None:
    digest, comparisons = record.read_comparison(str(path))
    setup_file = folder.parent / "setup" / f"{digest}.json"
    if not setup_file.is_file():
        raise InputError(f"record {path}: foreign: its setup {digest} is not in {setup_file.parent}")
    name, is_validation = path.stem, path.parent.name.startswith("validation")
    if is_validation and digest != setup.digest:
        raise InputError(f"record {path}: foreign: its setup is {digest}, expected {setup.digest}")
    for comparison in comparisons:
        # validation/repeat-<k>.json holds a repeat, batch-<b>/<kernel>.json a kernel
        expected = f"repeat-{comparison['repeat']}" if is_validation else comparison["target"]
        if name not in (expected, "fresh"):
            raise InputError(f"record {path}: foreign: it holds {expected}")
