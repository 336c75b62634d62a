"""`kernel-dvfs pipeline-frontier`: the whole frontier of iteration time against energy, as CSV."""

import sys

from kernel_dvfs.cli import pipeline_options


def add_arguments(parser) -> None:
    parser.epilog = (
        "example: kernel-dvfs pipeline-frontier stages.csv --scale-energy 8 --blocking-w 669 --microbatches 12 "
        "-o frontier.csv"
    )
    pipeline_options.add_arguments(parser)
    parser.add_argument("-o", "--output", required=True, metavar="F.csv")


def run(options) -> None:
    from kernel_dvfs.pipeline.write import write_frontier

    planner = pipeline_options.planner(options)
    for note in planner.notes:
        print(note, file=sys.stderr)
    write_frontier(options.output, planner.frontier)
