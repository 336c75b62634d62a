"""`kernel-dvfs pipeline-plan`: clocks for every instruction, for a time, a straggler, an energy budget or a price."""

import sys

from kernel_dvfs.cli import pipeline_options


def add_arguments(parser) -> None:
    parser.epilog = (
        "example: kernel-dvfs pipeline-plan stages.csv --scale-energy 8 --blocking-w 669 --microbatches 12 --time 28.4 "
        "-o plan.json"
    )
    pipeline_options.add_arguments(parser)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--time", type=float, metavar="S", help="never later than this")
    asked.add_argument("--straggler", type=float, metavar="S", help="all wait until then anyway")
    asked.add_argument("--energy", type=float, metavar="J", help="the fastest within this budget")
    asked.add_argument("--price", type=float, metavar="W", help="where one second less costs this much")
    parser.add_argument("--split", action="store_true", help="may change clocks within an operation")
    parser.add_argument("-o", "--output", required=True, metavar="PLAN.json")


def run(options) -> None:
    from kernel_dvfs.pipeline.plan import write_plan
    from kernel_dvfs.pipeline.planner import ONE_CLOCK, SPLIT

    planner = pipeline_options.planner(options)
    answers = {
        "time": planner.plan,
        "straggler": planner.plan_for_straggler,
        "energy": planner.plan_for_energy,
        "price": planner.plan_for_price,
    }
    asked = next(name for name in answers if getattr(options, name) is not None)
    plan = answers[asked](getattr(options, asked), SPLIT if options.split else ONE_CLOCK)
    for note in (*planner.notes, plan.note):
        if note:
            print(note, file=sys.stderr)
    about = {"profile": options.stages_csv, "schedule": options.schedule, "microbatches": options.microbatches}
    write_plan(options.output, plan, about | {"asked": {asked: getattr(options, asked)}})
