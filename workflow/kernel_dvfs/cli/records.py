"""`kernel-dvfs records`: which records of a sweep cannot be used, and why; delete them to have them measured again."""

import sys
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.measurement.target import Target


def add_arguments(parser) -> None:
    parser.epilog = (
        "example: kernel-dvfs records results/sim-rtx-3080-ti/gpt3-xl-b40-tp1/measurements "
        "--gpu SETUP.json --delete-bad"
    )
    parser.add_argument("folder", help="folder with kernel/ and pass/")
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="the setup they should have been measured under")
    parser.add_argument("--delete-bad", action="store_true", help="delete them, so that snakemake measures them again")


def run(options) -> int:
    setup = read(options.gpu)
    paths = sorted(Path(options.folder).glob("*/*/*/r*.json"))
    if not paths:
        raise InputError(f"{options.folder}: holds no records; name a folder 'measurements' with kernel/ and pass/")
    bad = 0
    for path in paths:
        study, name, pair = path.parts[-4:-1]
        try:
            record.read_point(str(path), setup, Target(study, name), parse(pair, "-"))
        except InputError as error:
            bad += 1
            print(error, file=sys.stderr)
            if options.delete_bad:
                path.unlink()
    print(f"{len(paths)} records, {bad} bad{' and deleted' if bad and options.delete_bad else ''}")
    return 2 if bad and not options.delete_bad else 0
