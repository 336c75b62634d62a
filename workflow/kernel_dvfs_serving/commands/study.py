"""`kernel-dvfs serving study`."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli import json_object, tell
from kernel_dvfs_serving.study import make_study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving study results/serving/mine --options '{...}'"
    parser.add_argument("folder", metavar="FOLDER", help="gets study.json")
    parser.add_argument("--options", required=True, metavar="JSON", help="as the workflow gives them")


def run(options: argparse.Namespace) -> None:
    tell(*(f"note: {notice}" for notice in make_study(options.folder, json_object("--options", options.options))))
