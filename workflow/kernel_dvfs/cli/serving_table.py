"""`kernel-dvfs serving-table`: one table of a serving study."""

from kernel_dvfs.serving.replay_plan import TABLES


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs serving-table savings results/serving/sim-h100-sxm-llama2-70b/mine"
    parser.add_argument("name", metavar="NAME", choices=TABLES, help=", ".join(TABLES))
    parser.add_argument("folder", metavar="FOLDER", help="of the study; written to its tables/")


def run(options) -> None:
    from importlib import import_module

    from kernel_dvfs.report.write import write_table
    from kernel_dvfs.serving.study import ServingStudy

    table = import_module(f"kernel_dvfs.serving.report.tables.{options.name}")
    study = ServingStudy(options.folder)
    # the week is another trace than the study's
    subject = table.subject(study) if hasattr(table, "subject") else study.subject
    write_table(table.make(study), options.folder, options.name, table.CAPTION, subject, ("csv", "md"))
