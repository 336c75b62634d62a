"""`kernel-dvfs pipeline-profile`: the stages of a study, from a CSV of stages or a profile of kernels."""

import json

from kernel_dvfs.errors import InputError


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs pipeline-profile profile.parquet FOLDER --options '{\"stages\": 8, ...}'"
    parser.add_argument("source", metavar="STAGES.csv|KERNELS.parquet")
    parser.add_argument("folder", metavar="FOLDER", help="gets stages.csv and study.json")
    parser.add_argument("--options", required=True, metavar="JSON", help="what study.json says")
    parser.add_argument(
        "--scale-time", type=float, default=1.0, metavar="X", help="times in a CSV times X (default: 1)"
    )
    parser.add_argument("--scale-energy", type=float, default=1.0, metavar="X", help="energies times X (default: 1)")


def run(options) -> None:
    from kernel_dvfs.pipeline.options import KEYS
    from kernel_dvfs.pipeline.study import make_study

    try:
        asked = json.loads(options.options)
    except ValueError as error:
        raise InputError(f"--options {options.options}: not JSON ({error})") from None
    missing = [key for key in (*KEYS, "name") if not isinstance(asked, dict) or key not in asked]
    if missing:
        raise InputError(f"--options: {', '.join(missing)} missing")
    make_study(options.source, options.folder, asked, options.scale_time, options.scale_energy)
