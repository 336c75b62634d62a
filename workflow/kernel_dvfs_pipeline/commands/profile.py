"""`kernel-dvfs pipeline profile`."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli import json_object
from kernel_dvfs.cli.arguments import columns_of
from kernel_dvfs_pipeline.commands.shared import add_scales, say
from kernel_dvfs_pipeline.steps import make_study
from kernel_dvfs_pipeline.study import check_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline profile`."""
    parser.epilog = "example: kernel-dvfs pipeline profile profile.parquet FOLDER --options '{\"stages\": 8, ...}'"
    parser.add_argument("source", metavar="STAGES.csv|KERNELS.parquet")
    parser.add_argument("folder", metavar="FOLDER", help="gets stages.csv and study.json")
    parser.add_argument("--options", required=True, metavar="JSON", help="what study.json says")
    add_scales(parser)


def run(options: argparse.Namespace) -> None:
    """Write stages.csv and study.json."""
    asked = json_object("--options", options.options)
    check_options("--options", asked)
    scales = options.scale_time, options.scale_energy
    say(*make_study(options.source, options.folder, asked, *scales, columns_of(options.columns)))
