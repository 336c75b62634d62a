"""`kernel-dvfs serving-table1`: DynamoLLM's Table I beside the simulated instance, as tables and heat map."""

from kernel_dvfs.cli.serving_options import add_instance, instance_options


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs serving-table1 results/serving/sim-h100-sxm-llama2-70b"
    parser.add_argument("folder", metavar="FOLDER", help="gets tables/table1* and figures/table1")
    add_instance(parser)


def run(options) -> None:
    from kernel_dvfs.gpu.spec import resolve
    from kernel_dvfs.report.write import write_figure, write_table
    from kernel_dvfs.serving.report.figures import table1 as figure
    from kernel_dvfs.serving.report.tables import table1 as table
    from kernel_dvfs.serving.table1 import agreement, simulated_cells

    cells = simulated_cells(options.gpu, options.model, **instance_options(options))
    subject = f"simulated {resolve(options.gpu)['name']}, {options.model}"
    for name, frame, caption in (
        ("table1", table.make(cells), table.CAPTION),
        ("table1_agreement", table.agreement(agreement(cells)), table.AGREEMENT_CAPTION),
        ("table1_mix", table.mixes(), table.MIX_CAPTION),
    ):
        write_table(frame, options.folder, name, caption, subject, ("csv", "md"))
    write_figure(figure.draw(table.make(cells), subject), options.folder, "table1", figure.CAPTION, subject)
