"""`kernel-dvfs serving table1`."""

from __future__ import annotations

import argparse

from kernel_dvfs_serving.commands.shared import add_instance, instance_of
from kernel_dvfs_serving.study import write_experiment
from kernel_dvfs_serving.table1 import experiment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving table1 -o results/serving/mine/experiments/table1.json"
    parser.add_argument("-o", "--output", required=True, metavar="OUT.json")
    add_instance(parser)


def run(options: argparse.Namespace) -> None:
    write_experiment(options.output, experiment(options.gpu, options.model, **instance_of(options)))
