"""`kernel-dvfs compare-gpus`: every GPU and workload in a results folder, side by side."""


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs compare-gpus results"
    parser.add_argument("results", help="the results folder; the tables go to its comparison/")


def run(options) -> None:
    from kernel_dvfs.report import comparison, specimens

    comparison.write(options.results)
    specimens.write(options.results)
