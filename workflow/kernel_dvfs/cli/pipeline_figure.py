"""`kernel-dvfs pipeline-figure`: one figure of a pipeline study, as PDF and PNG."""

from kernel_dvfs.pipeline.report.figures import NAMES


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs pipeline-figure timeline results/pipeline/sim-a100-sxm/gpt3-175b-b1-tp8/pp8"
    parser.add_argument("name", metavar="NAME", choices=NAMES, help=", ".join(NAMES))
    parser.add_argument("folder", metavar="FOLDER", help="of the study; written to its figures/")


def run(options) -> None:
    from importlib import import_module

    from kernel_dvfs.pipeline.study import PipelineStudy
    from kernel_dvfs.report.write import write_figure

    figure = import_module(f"kernel_dvfs.pipeline.report.figures.{options.name}")
    study = PipelineStudy(options.folder)
    write_figure(figure.draw(study), options.folder, options.name, figure.CAPTION, study.subject)
