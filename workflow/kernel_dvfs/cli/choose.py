"""`kernel-dvfs choose`."""

from __future__ import annotations

import json
import warnings
from argparse import ArgumentParser, Namespace
from typing import Any

from kernel_dvfs import jobs
from kernel_dvfs.choice.schedule import default_weights
from kernel_dvfs.cli import answer, tell
from kernel_dvfs.cli.arguments import PERCENT, one_of
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.report.words import answer_line, answer_of, frontier_line
from kernel_dvfs_clocks.errors import InputError, one_line


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs choose profile.parquet --slack 1 -o schedule.json"
    parser.add_argument("profile", metavar="P.parquet")
    parser.add_argument("--granularity", **one_of(("kernel", "pass")), help="default: kernel")
    parser.add_argument(
        "--scope",
        **one_of(("single", "local", "global")),
        help="one pair for all, each alone, all together (default: global)",
    )
    parser.add_argument("--objective", **one_of(("waste", "edp", "energy")), help="default: waste")
    parser.add_argument(
        "--slack", type=PERCENT, metavar="PERCENT", help="tolerated slowdown, of waste only (default: 0)"
    )
    parser.add_argument(
        "--frontier",
        action="store_true",
        help="instead: least energy at every slowdown",
    )
    parser.add_argument(
        "--weights",
        **one_of(("counts", "raw", "equal-time")),
        help="default: counts for a workload, raw for a table",
    )
    parser.add_argument(
        "--ties",
        **one_of(("tied", "untied")),
        default="tied",
        help="one choice for identical launches, or each its own (default: tied)",
    )
    parser.add_argument(
        "--walk",
        metavar="BY_CLOCK.json",
        help="what this walk has shown (default: the profile's optimum)",
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("-o", "--output", metavar="S.json", help="default: print the answer only")


def run(options: Namespace) -> None:
    if options.json and options.frontier:
        raise InputError("--json is the answer of a schedule; leave it out with --frontier")
    if options.output is None and options.frontier:
        raise InputError("choose: -o is missing: --frontier writes a file; add -o S.json")
    if options.frontier:
        _run_frontier(options)
        return
    slack = options.slack or 0
    if options.slack is not None and options.objective not in (None, "waste"):
        raise InputError(
            f"--slack {slack:g}: slack belongs to waste; leave it out with --objective {options.objective}"
        )
    _run_schedule(options, slack)


def _run_schedule(options: Namespace, slack: float) -> None:
    asked = options.granularity or "kernel", options.scope or "global", options.objective or "waste"
    how = options.weights, options.ties, options.walk or ""
    choose_and_answer(options.profile, options.output, *asked, slack, *how, as_json=options.json)
    if options.output is None:
        tell("note: nothing is written; add -o schedule.json for the clocks of each kernel")


def choose_and_answer(*asked: Any, as_json: bool = False, **options: Any) -> None:
    """Choose clocks as jobs.choose does, and print the answer."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        schedule = jobs.choose(*asked, **options)
    tell(*(f"note: {note.message}" for note in notes))
    answer(json.dumps(answer_of(schedule)) if as_json else one_line(answer_line(schedule)))


def _run_frontier(options: Namespace) -> None:
    for name in ("granularity", "scope", "objective", "slack", "walk"):
        if getattr(options, name) is not None:
            raise InputError(
                f"--{name} does not go with --frontier, which has kernels, waste, and every scope and slack"
            )
    frontier = jobs.frontier(options.profile, options.output, options.ties, options.weights)
    metadata = read_profile(options.profile).metadata
    about = {**metadata, "weights": options.weights or default_weights(metadata)}
    answer(one_line(frontier_line(about, frontier["points"], options.output)))
