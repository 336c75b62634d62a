"""`kernel-dvfs pipeline-solve`: frontier, published frontier and plans of a study, for one number of microbatches."""

import sys


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs pipeline-solve results/pipeline/sim-a100-sxm/gpt3-175b-b1-tp8/pp8 12"
    parser.add_argument("folder", metavar="FOLDER", help="of the study")
    parser.add_argument("microbatches", type=int, metavar="M")


def run(options) -> None:
    from kernel_dvfs.pipeline.study import PipelineStudy
    from kernel_dvfs.pipeline.write import write_solution

    study = PipelineStudy(options.folder)
    for note in study.planner(options.microbatches).notes:
        print(note, file=sys.stderr)
    write_solution(study, options.microbatches)
