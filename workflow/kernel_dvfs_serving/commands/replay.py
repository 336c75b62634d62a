"""`kernel-dvfs serving replay`."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from math import inf
from typing import TYPE_CHECKING

from kernel_dvfs.cli import tell
from kernel_dvfs.cli.arguments import columns_of, number, one_of, whole
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import parse_yaml, write_sealed
from kernel_dvfs_serving.commands.shared import (
    add_headings,
    add_machine,
    add_too_long,
    add_usual,
    held_by_instances,
    replayer_of,
)
from kernel_dvfs_serving.deployment import read_static, row
from kernel_dvfs_serving.profile import read_profile
from kernel_dvfs_serving.replay import answer, lines, outcome
from kernel_dvfs_serving.system import ROUTERS, SYSTEMS, settings
from kernel_dvfs_serving.trace import dealt, read_trace
from kernel_dvfs_serving.tuned import Trials, replayed

if TYPE_CHECKING:
    from kernel_dvfs_serving.system import ClusterSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs serving replay conv.csv --profile profile.csv --system DynamoLLM --servers 8 -o out.json"
    )
    parser.add_argument("trace", metavar="TRACE.csv", help="TIMESTAMP, ContextTokens, GeneratedTokens")
    parser.add_argument("--profile", required=True, metavar="PROFILE.csv", help="see kernel-dvfs serving profile")
    parser.add_argument("--system", default="DynamoLLM", metavar="NAME", help="(default: DynamoLLM)")
    parser.add_argument("--plan", metavar="PLAN.yaml", help="a static plan of serving plan, instead of a system")
    parser.add_argument(
        "--keep", type=number(1, 100), metavar="PERCENT", help="which of its plans (default: the first)"
    )
    parser.add_argument("--router", **one_of(ROUTERS), help="by which router (default: that of the cheapest)")
    add_headings(parser)
    add_too_long(parser)
    trouble = parser.add_argument_group("trouble, for a plan")
    trouble.add_argument(
        "--route-s", type=number(0, 60), default=0.0, metavar="S", help="from arrival until a replica has it"
    )
    trouble.add_argument(
        "--fails-s", type=number(0, 604_800), metavar="S", help="when the first server is lost and started again"
    )
    add_machine(parser)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings, as in config.yaml")
    add_usual(parser, "--servers", whole(1, 128), "N", "of 8 GPUs")
    add_usual(parser, "--pools", whole(1, 9), "N", "of pooled systems")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.json")


def run(options: argparse.Namespace) -> None:
    if options.system not in SYSTEMS:
        raise InputError(f"--system {options.system}: allowed: {', '.join(SYSTEMS)}")
    cluster_settings = _settings(options)
    for name, given in (("--router", options.router), ("--route-s", options.route_s), ("--fails-s", options.fails_s)):
        if given and not options.plan:
            raise InputError(f"serving replay: {name} belongs to --plan")
    read = read_static(options.plan, options.keep, options.router, options.profile) if options.plan else None
    trace, profile = read_trace(options.trace, columns=columns_of(options.columns)), read_profile(options.profile)
    if read:
        fails_s = inf if options.fails_s is None else options.fails_s
        plan = replace(read.plan, route_s=options.route_s, fails_s=fails_s)
        for clock in (plan.clock, plan.rest):
            if (plan.tp, clock) not in {key[1:] for key in profile.curves}:
                raise InputError(
                    f"{options.profile}: no rows of degree {plan.tp} at clock {clock}, which {options.plan} asks for; "
                    "profile them, or plan with this profile"
                )
        if not any(assignment.startswith("gaps=") for assignment in options.set):
            cluster_settings = replace(cluster_settings, gaps=read.gaps)
        cluster_settings = replace(cluster_settings, servers=plan.servers)
        replayer = replayer_of(options, profile, cluster_settings, slo_scale=read.slo_scale)
        trace = dealt(held_by_instances(trace, profile, replayer.machine, options.too_long), read.cells)
        tried = Trials(replayer, trace, cluster_settings).verdict(plan)
        print("\n".join(["of both halves, as planned:", row(tried)]))
        figures = replayed(replayer, trace, plan, cluster_settings, timeline=True) | {"tried": tried}
    else:
        replayer = replayer_of(options, profile, cluster_settings)
        trace = held_by_instances(trace, profile, replayer.machine, options.too_long)
        figures = outcome(replayer.run(trace, options.system, cluster_settings), timeline=True)
    made_of = {"trace": options.trace, "profile": options.profile} | ({"plan": options.plan} if options.plan else {})
    write_sealed(options.output, {"trace": trace.subject, "settings": asdict(cluster_settings)} | figures, made_of)
    print(answer(figures, "simulated" if profile.simulated else f"simulated from {options.profile}"))
    tell(*(f"note: {line}" for line in lines(figures)))


def _settings(options: argparse.Namespace) -> ClusterSettings:
    """Return the settings that are given. Raises InputError."""
    changed = {"servers": options.servers, "pools": options.pools}
    for assignment in options.set:
        key, _, text = assignment.partition("=")
        try:
            changed[key] = parse_yaml(text)
        except ValueError:
            raise InputError(f"--set {assignment}: expected KEY=VALUE, the value as in config.yaml") from None
    return settings("--set", changed)
