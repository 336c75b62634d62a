"""`kernel-dvfs serving anchors`."""

from __future__ import annotations

import argparse

from kernel_dvfs_serving.anchors import experiment
from kernel_dvfs_serving.study import write_experiment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving anchors -o results/serving/mine/experiments/anchors.json"
    parser.add_argument("-o", "--output", required=True, metavar="OUT.json")


def run(options: argparse.Namespace) -> None:
    write_experiment(options.output, experiment())
