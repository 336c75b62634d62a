"""`kernel-dvfs pipeline graph`."""

from __future__ import annotations

import argparse

from kernel_dvfs_pipeline.commands.shared import add_schedule, graph_of
from kernel_dvfs_pipeline.graph import write_graph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline graph`."""
    parser.epilog = "example: kernel-dvfs pipeline graph --schedule dualpipe --stages 8 --microbatches 20 -o graph.json"
    add_schedule(parser)
    parser.add_argument("-o", "--output", required=True, metavar="GRAPH.json")


def run(options: argparse.Namespace) -> None:
    """Write the operations of a schedule, and what each waits for."""
    write_graph(options.output, graph_of(options, options.stages))
