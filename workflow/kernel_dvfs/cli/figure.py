"""`kernel-dvfs figure`: one figure of a results folder, as PDF and PNG."""

from kernel_dvfs.report.figures import NAMES


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs figure fig3_forward_pass results/sim-rtx-3080-ti/gpt3-xl-b40-tp1"
    parser.add_argument("name", metavar="NAME", choices=NAMES, help=", ".join(NAMES))
    parser.add_argument("folder", metavar="FOLDER", help="results/<gpu>/<workload>; written to its figures/")


def run(options) -> None:
    import importlib

    from kernel_dvfs.report.figures.save import write_figure
    from kernel_dvfs.report.results import Results

    module = importlib.import_module(f"kernel_dvfs.report.figures.{options.name}")
    results = Results(options.folder)
    write_figure(module.draw(results), options.folder, options.name, module.CAPTION, results.subject)
