"""`kernel-dvfs pipeline export`."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli.arguments import one_of
from kernel_dvfs_pipeline.export import FORMATS
from kernel_dvfs_pipeline.study import read_plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline export`."""
    parser.epilog = "example: kernel-dvfs pipeline export plan.json --format zeus -o plan.py"
    parser.add_argument("plan", metavar="PLAN.json", help="what pipeline plan wrote")
    parser.add_argument("--format", **one_of(("csv", "zeus")), default="csv", help="default: csv")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="FILE.csv, or FILE.py for zeus")


def run(options: argparse.Namespace) -> None:
    """Write a plan for another program."""
    FORMATS[options.format](options.output, read_plan(options.plan))
