"""`kernel-dvfs pipeline-table`: one table of a pipeline study."""

from importlib import import_module

from kernel_dvfs.layout import PIPELINE_TABLES


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs pipeline-table emulation results/pipeline/sim-a100-sxm/gpt3-175b-b1-tp8/pp8"
    parser.add_argument("name", choices=PIPELINE_TABLES)
    parser.add_argument("folder", metavar="FOLDER", help="of the study; written to its tables/")


def run(options) -> None:
    from kernel_dvfs.pipeline.study import PipelineStudy
    from kernel_dvfs.report.write import write_table

    table = import_module(f"kernel_dvfs.pipeline.report.tables.{options.name}")
    study = PipelineStudy(options.folder)
    write_table(table.make(study), options.folder, options.name, table.CAPTION, study.subject, ("csv", "md"))
