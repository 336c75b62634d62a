"""`kernel-dvfs pipeline measure`."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli import tell
from kernel_dvfs_pipeline.commands.of_training import add_training
from kernel_dvfs_pipeline.recording import GRAPH, LATENCY, STAGES
from kernel_dvfs_pipeline.training import measure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline measure`."""
    parser.epilog = (
        "example: kernel-dvfs pipeline measure train.py -o measured, after torchrun --nproc-per-node 4 --no-python"
    )
    add_training(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help=f"gets {STAGES}, {GRAPH}, {LATENCY}")


def run(options: argparse.Namespace) -> None:
    """Measure the stages of a training, what waiting draws, and how long changes of clocks take."""
    measure(
        options.training,
        options.output,
        options.gpus,
        options.through,
        options.dry_run,
        options.block_s,
        tell,
    )
