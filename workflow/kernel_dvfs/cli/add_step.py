"""`kernel-dvfs measure step`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs.profile.step import measured_step
from kernel_dvfs.workload.step import write


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs measure step step.json --profile profile.parquet -o step-measured.json; "
        "snakemake ... workload=step:step-measured.json gpu=h200_sxm then forecasts from it"
    )
    parser.add_argument("step", metavar="STEP.json", help="of kernel-dvfs capture")
    parser.add_argument("--profile", required=True, metavar="P.parquet", help="of a study of that step")
    parser.add_argument("-o", "--output", required=True, metavar="STEP.json")


def run(options: Namespace) -> None:
    write(options.output, measured_step(options.step, options.profile))
