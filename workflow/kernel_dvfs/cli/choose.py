"""`kernel-dvfs choose`: clocks from a profile, by scope and objective, as a schedule."""

import math

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_json


def add_arguments(parser) -> None:
    parser.epilog = (
        "example: kernel-dvfs choose profile.parquet --scope global --objective waste --slack 0 -o schedule.json"
    )
    parser.add_argument("profile", metavar="P.parquet")
    parser.add_argument("--granularity", choices=("kernel", "pass"), default="kernel", help="default: kernel")
    parser.add_argument(
        "--scope",
        choices=("single", "local", "global"),
        required=True,
        help="one pair for all, each on its own, or all together",
    )
    parser.add_argument("--objective", choices=("waste", "edp", "energy"), required=True)
    parser.add_argument(
        "--slack", type=float, metavar="PERCENT", help="tolerated slowdown of waste, and of waste only (default: 0)"
    )
    parser.add_argument(
        "--weights",
        choices=("counts", "raw", "equal-time"),
        help="default: counts for a workload, raw for a table",
    )
    parser.add_argument(
        "--ties",
        choices=("tied", "untied"),
        default="tied",
        help="one choice for identical launches, or each its own (default: tied)",
    )
    parser.add_argument(
        "--margin-z",
        type=float,
        metavar="Z",
        help="global waste: keep the time limit by Z standard errors of the total, among what was measured again "
        "(default: the optimum of the profile as it stands)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="S.json")


def run(options) -> None:
    from kernel_dvfs.choice.schedule import choose

    slack = options.slack or 0
    if options.slack is not None and options.objective != "waste":
        raise InputError(
            f"--slack {slack:g}: slack belongs to waste; leave it out with --objective {options.objective}"
        )
    if not math.isfinite(slack):
        raise InputError(f"--slack {slack}: expected a number of percent")
    if options.margin_z is not None and not 0 <= options.margin_z < math.inf:
        raise InputError(f"--margin-z {options.margin_z}: expected a number >= 0")
    schedule = choose(
        options.profile,
        granularity=options.granularity,
        scope=options.scope,
        objective=options.objective,
        slack_percent=slack,
        weights=options.weights,
        ties=options.ties,
        margin_z=options.margin_z,
    )
    if schedule["status"] != "optimal":
        raise InputError(
            f"{options.profile}: no choice keeps the limit of {slack:g} % slowdown ({schedule['proof']}); raise --slack"
        )
    write_json(options.output, schedule)
