"""`kernel-dvfs serving profile`."""

from __future__ import annotations

import argparse

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.commands.shared import add_instance, instance_of
from kernel_dvfs_serving.make_profile import profile_rows
from kernel_dvfs_serving.profile import write_profile
from kernel_dvfs_serving.requests import CLASSES, seen_lengths
from kernel_dvfs_serving.system import DEFAULTS
from kernel_dvfs_serving.trace import read_trace


def _whole_numbers(option: str, text: str) -> list[int]:
    """Return `2,4,8` as numbers, each once, in order. Raises InputError."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) for word in words) or len(set(words)) < len(words):
        raise InputError(f"{option} {text}: expected different whole numbers of at least 1, separated by commas")
    return [int(word) for word in words]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving profile --tp 2,4,8 --core-mhz 800,1200,1600,1980 -o profile.csv"
    parser.add_argument("-o", "--output", required=True, metavar="PROFILE.csv")
    add_instance(parser)
    degrees = ",".join(map(str, DEFAULTS["degrees"]))
    parser.add_argument("--tp", default=degrees, metavar="N,...", help=f"tensor-parallel degrees (default: {degrees})")
    parser.add_argument("--core-mhz", required=True, metavar="MHZ,...", help="core clocks")
    parser.add_argument("--classes", metavar="SS,...", help="request classes (default: all nine)")
    parser.add_argument("--lengths-of", metavar="TRACE.csv", help="draw lengths from its requests (default: built in)")


def run(options: argparse.Namespace) -> None:
    classes = options.classes.split(",") if options.classes else CLASSES
    unknown = [name for name in classes if name not in CLASSES]
    if unknown:
        raise InputError(f"--classes {options.classes}: no class {unknown[0]!r}; allowed: {', '.join(CLASSES)}")
    seen = None
    if options.lengths_of:
        trace = read_trace(options.lengths_of)
        seen = seen_lengths(trace.input_tokens, trace.output_tokens)
    engine = instance_of(options)
    rows = profile_rows(
        options.gpu,
        options.model,
        _whole_numbers("--tp", options.tp),
        _whole_numbers("--core-mhz", options.core_mhz),
        classes,
        seen=seen,
        **engine,
    )
    write_profile(options.output, rows, engine, {"trace": options.lengths_of} if options.lengths_of else None)
