"""What the commands share that run in a training's own environment, which has no solver."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli import THROUGH
from kernel_dvfs.cli.arguments import number


def add_training(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a training and its GPUs."""
    parser.add_argument("training", metavar="TRAIN.py", help="has a function training(follow): docs/pipeline.md")
    parser.add_argument(
        "--gpus",
        default="",
        metavar="G,...",
        help="UUID or index of each local rank's GPU, or of one that they share; none: no GPU is looked at (default: "
        "as the ranks are numbered)",
    )
    parser.add_argument("--through", default="auto", metavar="WAY", help=THROUGH)
    parser.add_argument("--dry-run", action="store_true", help="set nothing")
    parser.add_argument(
        "--block-s", type=number(0, 3600, "seconds"), default=2.0, metavar="S", help="of each block (default: 2)"
    )
