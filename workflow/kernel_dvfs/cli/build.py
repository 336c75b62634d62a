"""`kernel-dvfs build`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli.arguments import one_of
from kernel_dvfs.native.build import MODES, build
from kernel_dvfs.shipped import native_or
from kernel_dvfs_clocks import package
from kernel_dvfs_clocks.errors import InputError


def add_arguments(parser: ArgumentParser) -> None:
    """Describe the options to an argparse parser."""
    parser.description = (
        "Compile the native layer into results/native/. With --cpu, --cuda, --graph, --pipeline only what they name, "
        "else all. "
        "In mode auto the build goes on where a tool is missing, on fails, off removes what was built."
    )
    parser.epilog = "example: kernel-dvfs build --cuda on"
    parser.add_argument(
        "--native-dir", default="", metavar="DIR", help="the CMake project (default: native, or as shipped)"
    )
    parser.add_argument(
        "--out",
        default="results/native",
        metavar="DIR",
        help="where the backends go (default: results/native)",
    )
    parser.add_argument("--cpu", **one_of(MODES), help="the C reference")
    parser.add_argument(
        "--cuda",
        **one_of(MODES),
        help="the CUDA kernels ($CUDAARCHS: other architectures than 80, 86, 90 and PTX)",
    )
    parser.add_argument("--graph", **one_of(MODES), help="what reads captured CUDA graphs")
    parser.add_argument("--pipeline", **one_of(MODES), help="the search for clocks of a pipeline")
    parser.add_argument(
        "--beside",
        action="store_true",
        help="put the search where every folder finds it",
    )


def run(args: Namespace) -> int:
    """Build what `args` asks for. Raises InputError: see kernel_dvfs.native.build.build."""
    named = {"cpu": args.cpu, "cuda": args.cuda, "graph": args.graph, "pipeline": args.pipeline}
    if not any(named.values()):
        named = dict.fromkeys(named, "auto")
    if args.beside and any(mode for backend, mode in named.items() if backend != "pipeline"):
        raise InputError("--beside is for the search for clocks: give it with --pipeline alone")
    out = os.path.join(package.FOLDER, "kernel_dvfs_pipeline", "native") if args.beside else args.out
    for backend, mode in named.items():
        if mode:
            build(native_or(args.native_dir), out, backend, mode)
    return 0
