"""`kernel-dvfs serving-figure`: one figure of a serving study, as PDF and PNG."""

from kernel_dvfs.serving.replay_plan import FIGURES


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs serving-figure power results/serving/sim-h100-sxm-llama2-70b/mine"
    parser.add_argument("name", metavar="NAME", choices=FIGURES, help=", ".join(FIGURES))
    parser.add_argument("folder", metavar="FOLDER", help="of the study; written to its figures/")


def run(options) -> None:
    from importlib import import_module

    from kernel_dvfs.report.write import write_figure
    from kernel_dvfs.serving.study import ServingStudy

    figure = import_module(f"kernel_dvfs.serving.report.figures.{options.name}")
    study = ServingStudy(options.folder)
    # the week is another trace than the study's
    subject = figure.subject(study) if hasattr(figure, "subject") else study.subject
    write_figure(figure.draw(study), options.folder, options.name, figure.CAPTION, subject)
