"""`kernel-dvfs identify`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs.measurement.real import specimen


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs identify --slurm='--partition=gpu --gpus=1 --exclusive'"
    parser.add_argument("--gpu", default="", metavar="UUID|INDEX", help="which GPU (default: the only one, or Slurm's)")
    parser.add_argument("--results", default="results", metavar="FOLDER", help="where it is kept (results)")
    parser.add_argument("--slurm", metavar="OPTIONS", help="look at the GPU that a job with these options gets")
    parser.add_argument("--tell", metavar="FILE", help="also write what is said here")


def run(options: Namespace) -> None:
    if options.slurm is not None:
        print(specimen.elsewhere(options.slurm, options.results))
    else:
        print(specimen.here(options.gpu, options.results, options.tell))
