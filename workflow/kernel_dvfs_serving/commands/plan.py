"""`kernel-dvfs serving plan`."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli.arguments import columns_of, number, one_of, whole
from kernel_dvfs_clocks.errors import InputError, one_line
from kernel_dvfs_clocks.files import digests, write_text
from kernel_dvfs_serving.commands.shared import (
    add_headings,
    add_machine,
    add_too_long,
    add_usual,
    held_by_instances,
    replayer_of,
)
from kernel_dvfs_serving.deployment import Served, as_yaml, lines, recording_rules, sealed_yaml, written
from kernel_dvfs_serving.profile import read_profile
from kernel_dvfs_serving.requests import CLASSES
from kernel_dvfs_serving.system import ClusterSettings, check_spare
from kernel_dvfs_serving.trace import dealt, model_len, of_loads, read_trace
from kernel_dvfs_serving.tuned import LEVELS, Trials, planned, second_for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving plan conv.csv --profile profile.csv -o plan.yaml"
    parser.add_argument("trace", nargs="?", metavar="TRACE.csv", help="that plans are replayed on; or give --load")
    parser.add_argument(
        "--load",
        action="append",
        default=[],
        metavar="CLASS=TPS",
        help="tokens/s of a class, synthetic; repeatable",
    )
    add_headings(parser)
    add_too_long(parser)
    parser.add_argument("--profile", required=True, metavar="PROFILE.csv", help="see kernel-dvfs serving profile")
    parser.add_argument("-o", "--output", required=True, metavar="PLAN.yaml")
    parser.add_argument(
        "--keep", metavar="PERCENT,...", help="of requests whose promises are kept (default: 99,99.5,99.9)"
    )
    parser.add_argument(
        "--gaps",
        **one_of(("mean", "p99")),
        default="mean",
        help="which gap between tokens is promised (default: mean)",
    )
    add_usual(parser, "--slo-scale", number(0.001, 1000), "X", "factor of every promise")
    add_usual(parser, "--servers", whole(1, 128), "N", "of 8 GPUs, at most, of a cell")
    parser.add_argument(
        "--cells", type=whole(1, 10_000), default=1, metavar="N", help="fleets to which requests are dealt (default: 1)"
    )
    add_usual(parser, "--spare", whole(0, 127), "N", "of the servers, without which the promise is kept")
    add_machine(parser)
    parser.add_argument("--rules", metavar="RULES.yaml", help="Prometheus recording rules of the first plan as well")


LOADS_S = 1800.0  # that given loads last


def run(options: argparse.Namespace) -> None:
    if (options.trace is None) == (not options.load):
        raise InputError("serving plan: give either a trace or, class by class, --load CLASS=TPS")
    levels = _percents(options.keep) if options.keep else LEVELS
    if options.trace:
        whole_trace = read_trace(options.trace, columns=columns_of(options.columns))
    else:
        whole_trace = of_loads(_loads(options.load), LOADS_S, 1)
    profile = read_profile(options.profile)
    check_spare(options.servers, options.spare)
    settings = ClusterSettings(servers=options.servers, spare=options.spare, gaps=options.gaps)
    replayer = replayer_of(options, profile, settings, slo_scale=options.slo_scale)
    held = held_by_instances(whole_trace, profile, replayer.machine, options.too_long)
    trials = Trials(replayer, dealt(held, options.cells), settings)
    with second_for(trials) as second:
        verdicts, replays = planned(trials, levels, second)
    if not verdicts:
        limit = f"{options.servers}" + (f" less {options.spare} spare" if options.spare else "")
        raise InputError(
            f"{trials.trace.subject}: no static plan on up to {limit} servers keeps {min(levels):g} % of the promises "
            "with all margins; give more servers or --cells, profile other degrees or clocks, or raise --slo-scale"
        )
    source = ", ".join(sorted(profile.sources))
    about = {
        "trace": options.trace or held.subject,
        "profile": options.profile,
        "source": source,
        "cells": options.cells,
        "spare": options.spare,
        "slo_scale": options.slo_scale,
        "gaps": options.gaps,
    }
    made_of = digests({"profile": options.profile} | ({"trace": options.trace} if options.trace else {}))
    length = model_len(held, profile.model)
    served = {tp: Served(profile.model, replayer.machine.kv_tokens(tp), length) for tp in profile.degrees}
    plans = written(verdicts, about | {"made_of": made_of}, served)
    write_text(options.output, sealed_yaml(plans))
    if options.rules:
        write_text(options.rules, as_yaml(recording_rules(plans)))
    print(one_line(f"{held.subject}, {profile.model} on {profile.gpu} ({source}), replayed ({replays} times)"))
    print("\n".join(lines(verdicts, levels, options.cells, options.spare)))
    print("\n".join(plans["plans"][0]["start"].values()))


def _percents(text: str) -> list[float]:
    try:
        return [number(1, 100, "percent")(percent) for percent in text.split(",")]
    except argparse.ArgumentTypeError as error:
        raise InputError(f"--keep {text}: {error}") from None


def _loads(given: list[str]) -> dict[str, float]:
    """Return {class: tokens/s}. Raises InputError."""
    loads: dict[str, float] = {}
    for load in given:
        name, _, text = load.partition("=")
        if name not in CLASSES or name in loads:
            raise InputError(f"--load {load}: expected one of {', '.join(CLASSES)}, each once, as in MM=4000")
        try:
            loads[name] = number(0.001, 1e9, "tokens/s")(text)
        except argparse.ArgumentTypeError as error:
            raise InputError(f"--load {load}: {error}") from None
    return loads
