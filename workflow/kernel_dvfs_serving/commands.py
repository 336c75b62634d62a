"""Inference serving: a simulated instance, traces replayed through serving systems, tables and figures of a study.

Each command imports what it needs when it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_dvfs.cli import Command, json_object, tell
from kernel_dvfs.cli.arguments import SEED, SIZE, number, one_of, whole
from kernel_dvfs.errors import InputError, one_line
from kernel_dvfs_serving.system import DEFAULTS, check_step

if TYPE_CHECKING:
    from kernel_dvfs_serving.profile import Profile
    from kernel_dvfs_serving.replay import Replayer
    from kernel_dvfs_serving.system import Settings


def _add_instance(parser: argparse.ArgumentParser) -> None:
    """What simulates an instance: GPU, model, engine, and how many requests of which draw."""
    _add_machine(parser)
    _add_usual(parser, "--requests", whole(20, 1_000_000), "N", "simulated per load")
    _add_usual(parser, "--max-batch", SIZE, "N", "sequences at once")
    _add_usual(parser, "--chunk-tokens", whole(2, 1_000_000), "N", "tokens of a step")
    parser.add_argument("--seed", type=SEED, default=1)


def _add_machine(parser: argparse._ActionsContainer) -> None:
    _add_usual(parser, "--gpu", str, None, "a simulated GPU")
    _add_usual(parser, "--model", str, None, "a served model")
    _add_usual(parser, "--host-s", number(0, 10), "S", "the host's time per step")


def _add_usual(
    parser: argparse._ActionsContainer, flag: str, read: Callable[[str], object], metavar: str | None, told: str
) -> None:
    """An option that, where it is not given, is what a study of the shipped configuration has."""
    usual = DEFAULTS[flag.removeprefix("--").replace("-", "_")]
    shown = f"{usual:g}" if isinstance(usual, float) else usual
    parser.add_argument(flag, type=read, default=usual, metavar=metavar, help=f"{told} (default: {shown})")


def _instance(options: argparse.Namespace) -> dict[str, Any]:
    """The numbers of _add_instance as keywords of make_profile. Raises InputError."""
    check_step(options.max_batch, options.chunk_tokens)
    return {name: getattr(options, name) for name in ("requests", "seed", "max_batch", "chunk_tokens", "host_s")}


def _whole_numbers(option: str, text: str) -> list[int]:
    """`2,4,8` as numbers, each once, in order. Raises InputError."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) for word in words) or len(set(words)) < len(words):
        raise InputError(f"{option} {text}: expected different whole numbers of at least 1, separated by commas")
    return [int(word) for word in words]


# -- one instance ------------------------------------------------------------------------------------------------------


def _profile_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving profile --tp 2,4,8 --core-mhz 800,1200,1600,1980 -o profile.csv"
    parser.add_argument("-o", "--output", required=True, metavar="PROFILE.csv")
    _add_instance(parser)
    degrees = ",".join(map(str, DEFAULTS["degrees"]))
    parser.add_argument("--tp", default=degrees, metavar="N,...", help=f"tensor-parallel degrees (default: {degrees})")
    parser.add_argument("--core-mhz", required=True, metavar="MHZ,...", help="core clocks")
    parser.add_argument("--classes", metavar="SS,...", help="request classes (default: all nine)")
    parser.add_argument("--lengths-of", metavar="TRACE.csv", help="draw lengths from its requests (default: built in)")


def _profile(options: argparse.Namespace) -> None:
    from kernel_dvfs_serving.make_profile import profile_rows
    from kernel_dvfs_serving.profile import write_profile
    from kernel_dvfs_serving.requests import CLASSES, seen_lengths
    from kernel_dvfs_serving.trace import read_trace

    classes = options.classes.split(",") if options.classes else CLASSES
    unknown = [name for name in classes if name not in CLASSES]
    if unknown:
        raise InputError(f"--classes {options.classes}: no class {unknown[0]!r}; allowed: {', '.join(CLASSES)}")
    seen = None
    if options.lengths_of:
        trace = read_trace(options.lengths_of)
        seen = seen_lengths(trace.input_tokens, trace.output_tokens)
    engine = _instance(options)
    rows = profile_rows(
        options.gpu,
        options.model,
        _whole_numbers("--tp", options.tp),
        _whole_numbers("--core-mhz", options.core_mhz),
        classes,
        seen=seen,
        **engine,
    )
    write_profile(options.output, rows, engine)


def _anchors_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving anchors -o results/serving/mine/experiments/anchors.json"
    parser.add_argument("-o", "--output", required=True, metavar="OUT.json")


def _anchors(options: argparse.Namespace) -> None:
    from kernel_dvfs.files import write_json
    from kernel_dvfs_serving.anchors import experiment

    write_json(options.output, experiment())


def _table1_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving table1 -o results/serving/mine/experiments/table1.json"
    parser.add_argument("-o", "--output", required=True, metavar="OUT.json")
    _add_instance(parser)


def _table1(options: argparse.Namespace) -> None:
    from kernel_dvfs.files import write_json
    from kernel_dvfs_serving.table1 import experiment

    write_json(options.output, experiment(options.gpu, options.model, **_instance(options)))


# -- traces and their replay -------------------------------------------------------------------------------------------


def _trace_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving trace --hours 1 --rate 3 --seed 1 -o synthetic_hour.csv"
    parser.add_argument("trace", nargs="?", metavar="TRACE.csv", help="to check, sum up and print the SHA-256 of")
    parser.add_argument(
        "--times", type=whole(1, 1000), default=1, metavar="N", help="copies of each of its requests (default: 1)"
    )
    parser.add_argument(
        "--hours", type=number(1 / 60, 168), metavar="H", help="make a synthetic trace of so many hours"
    )
    parser.add_argument("--week", **one_of(("conversation", "coding")), help="make a synthetic week of published shape")
    parser.add_argument(
        "--rate", type=number(1e-3, 1000), default=3.0, metavar="R", help="of the hours, requests/s (default: 3)"
    )
    parser.add_argument(
        "--swing",
        type=number(0, 0.99),
        default=0.6,
        metavar="X",
        help="of that rate, slowly up and down (default: 0.6)",
    )
    parser.add_argument("--service", **one_of(("conversation", "coding")), default="conversation", help="of the hours")
    parser.add_argument(
        "--bursts", type=whole(0, 10_000), default=0, metavar="N", help="minutes of ten times the rate (default: 0)"
    )
    parser.add_argument(
        "--scale", type=number(1e-3, 100), default=0.05, metavar="X", help="of the week's rate (default: 0.05)"
    )
    parser.add_argument("--days", type=number(1 / 1440, 7), default=7.0, metavar="D", help="of the week (default: 7)")
    parser.add_argument("--seed", type=SEED, default=1)
    parser.add_argument("-o", "--output", metavar="TRACE.csv", help="where a trace that is made goes")


def _trace(options: argparse.Namespace) -> None:
    from kernel_dvfs_serving.trace import hours, multiplied, read_trace, sha256, summary, week, write_trace

    made = options.hours is not None or options.week or options.times != 1
    if made and not options.output:
        raise InputError("a trace that is made needs a place: -o synthetic.csv")
    if options.week:
        trace = week(options.week, options.scale, options.seed, options.days)
    elif options.hours is not None:
        span_s = round(3600 * options.hours)
        trace = hours(options.rate, options.seed, span_s, options.service, options.swing, options.bursts)
    elif options.trace:
        trace = multiplied(read_trace(options.trace), options.times, options.seed)
    else:
        raise InputError("name a trace to check, or ask for a synthetic one: --hours 1 or --week conversation")
    path = options.output if made else options.trace
    if made:
        write_trace(path, trace)
    print(f"{one_line(f'{path}: {trace.subject}')}\nsha256 {sha256(path)}")
    for name, value in summary(trace).items():
        print(f"{name} {value:g}")


def _replay_arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument("--packing", action="store_true", help="that plan with the packing router")
    trouble = parser.add_argument_group("trouble, for a plan; --set preempts=true lets KV caches fill up")
    trouble.add_argument(
        "--route-s", type=number(0, 60), default=0.0, metavar="S", help="from arrival until a replica has it"
    )
    trouble.add_argument(
        "--fails-s", type=number(0, 604_800), metavar="S", help="when the first server is lost and started again"
    )
    _add_machine(parser)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings, as in config.yaml")
    _add_usual(parser, "--servers", whole(1, 128), "N", "of 8 GPUs")
    _add_usual(parser, "--pools", whole(1, 9), "N", "of pooled systems")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.json")


def _replay(options: argparse.Namespace) -> None:
    from dataclasses import asdict, replace
    from math import inf

    from kernel_dvfs.files import write_json
    from kernel_dvfs_serving.profile import read_profile
    from kernel_dvfs_serving.replay import answer, lines, outcome
    from kernel_dvfs_serving.system import SYSTEMS
    from kernel_dvfs_serving.trace import dealt, read_trace
    from kernel_dvfs_serving.tuned import read_static, replayed

    if options.system not in SYSTEMS:
        raise InputError(f"--system {options.system}: allowed: {', '.join(SYSTEMS)}")
    own = _settings(options)
    for name, given in (("--packing", options.packing), ("--route-s", options.route_s), ("--fails-s", options.fails_s)):
        if given and not options.plan:
            raise InputError(f"serving replay: {name} belongs to --plan")
    read = read_static(options.plan, options.keep, options.packing) if options.plan else None
    trace, profile = read_trace(options.trace), read_profile(options.profile)
    if read:
        fails_s = inf if options.fails_s is None else options.fails_s
        plan = replace(read.plan, route_s=options.route_s, fails_s=fails_s)
        clocks = {key[1:] for key in profile.curves}
        for tp, clock in dict.fromkeys(plan.instances):
            if (tp, clock) not in clocks:
                raise InputError(
                    f"{options.profile}: no rows of degree {tp} at clock {clock}, which {options.plan} asks for; "
                    "profile them, or plan with this profile"
                )
        if not any(each.startswith("gaps=") for each in options.set):
            own = replace(own, gaps=read.gaps)
        own, trace = replace(own, servers=plan.servers), dealt(trace, read.cells)
        replayer = _replayer(options, profile, own, slo_scale=read.slo_scale)
        found = replayed(replayer, trace, plan, own, timeline=True)
    else:
        found = outcome(_replayer(options, profile, own).run(trace, options.system, own), timeline=True)
    write_json(options.output, {"trace": trace.subject, "settings": asdict(own)} | found)
    print(answer(found, "simulated" if profile.simulated else f"simulated from {options.profile}"))
    tell(*(f"note: {line}" for line in lines(found)))


def _settings(options: argparse.Namespace) -> Settings:
    """The settings that are given. Raises InputError."""
    from kernel_dvfs.files import parse_yaml
    from kernel_dvfs_serving.system import settings

    changed = {"servers": options.servers, "pools": options.pools}
    for each in options.set:
        key, _, text = each.partition("=")
        try:
            changed[key] = parse_yaml(text)
        except ValueError:
            raise InputError(f"--set {each}: expected KEY=VALUE, the value as in config.yaml") from None
    return settings("--set", changed)


# -- real servers: measurements in, a plan out -------------------------------------------------------------------------


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving import runs.yaml -o profile.csv"
    parser.add_argument("runs", metavar="RUNS.yaml", help="which benchmark ran at which degree and clock")
    parser.add_argument("-o", "--output", required=True, metavar="PROFILE.csv")


def _import(options: argparse.Namespace) -> None:
    from kernel_dvfs_serving.benchmarks import import_runs
    from kernel_dvfs_serving.profile import write_profile

    rows, notes = import_runs(options.runs)
    write_profile(options.output, rows)
    tell(*(f"note: {note}" for note in notes))


def _plan_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving plan conv.csv --profile profile.csv -o plan.yaml"
    parser.add_argument("trace", nargs="?", metavar="TRACE.csv", help="that plans are replayed on; or give --load")
    parser.add_argument(
        "--load",
        action="append",
        default=[],
        metavar="CLASS=TPS",
        help="tokens/s of a class, of a synthetic half hour; may be repeated",
    )
    parser.add_argument("--profile", required=True, metavar="PROFILE.csv", help="see kernel-dvfs serving profile")
    parser.add_argument("-o", "--output", required=True, metavar="PLAN.yaml")
    parser.add_argument(
        "--keep", metavar="PERCENT,...", help="of requests whose promises are kept (default: 99,99.5,99.9)"
    )
    parser.add_argument(
        "--gaps",
        **one_of(("mean", "p99")),
        default="mean",
        help="what of an answer's gaps between tokens is promised (default: mean)",
    )
    _add_usual(parser, "--slo-scale", number(0.001, 1000), "X", "factor of every promise")
    _add_usual(parser, "--servers", whole(1, 128), "N", "of 8 GPUs, at most, of a cell")
    parser.add_argument(
        "--cells", type=whole(1, 10_000), default=1, metavar="N", help="fleets to which requests are dealt (default: 1)"
    )
    _add_usual(parser, "--spare", whole(0, 127), "N", "of the servers, without which the promise is kept")
    parser.add_argument("--preempts", action="store_true", help="KV caches grow with the answers and may be full")
    _add_machine(parser)
    parser.add_argument("--rules", metavar="RULES.yaml", help="Prometheus recording rules of the first plan as well")


def _route_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs serving route plan.yaml --profile profile.csv --replica http://10.0.0.7:8000 "
        "--replica http://10.0.0.8:8000"
    )
    parser.add_argument("plan", metavar="PLAN.yaml", help="of serving plan: packing's degree, clock and mean answer")
    parser.add_argument("--profile", required=True, metavar="PROFILE.csv", help="that it was planned with")
    parser.add_argument(
        "--keep", type=number(1, 100), metavar="PERCENT", help="which of its plans (default: the first)"
    )
    parser.add_argument(
        "--replica", action="append", default=[], required=True, metavar="URL", help="http://host:port; repeat it"
    )
    parser.add_argument("--host", default="127.0.0.1", help="to listen at (default: 127.0.0.1)")
    parser.add_argument("--port", type=whole(1, 65_535), default=8080, metavar="N", help="(default: 8080)")
    parser.add_argument("--high-first", action="store_true", help="the servers take the higher priority first")
    _add_machine(parser)


def _route(options: argparse.Namespace) -> None:
    import asyncio

    from kernel_dvfs_serving.packing import Packing
    from kernel_dvfs_serving.profile import read_profile
    from kernel_dvfs_serving.proxy import Proxy
    from kernel_dvfs_serving.system import Settings
    from kernel_dvfs_serving.tuned import read_static

    read = read_static(options.plan, options.keep, packing=True)
    assert isinstance(read.plan, Packing)
    own = Settings()
    machine = _replayer(options, read_profile(options.profile), own).machine
    proxy = Proxy(
        options.replica,
        machine.engine(read.plan.tp, read.plan.clock),
        machine.kv_tokens(read.plan.tp),
        read.plan.answer_tokens,
        read.slo_scale,
        own.chunk_tokens,
        options.high_first,
    )

    async def serve() -> None:
        try:
            port = await proxy.start(options.host, options.port)
        except OSError as error:
            raise InputError(f"--host {options.host} --port {options.port}: {error.strerror}") from None
        print(f"http://{options.host}:{port} routes to {len(proxy.replicas)} replicas; no clock is set", flush=True)
        await proxy.run()

    asyncio.run(serve())


LOADS_S = 1800.0  # that given loads last


def _plan(options: argparse.Namespace) -> None:
    from dataclasses import replace

    from kernel_dvfs.files import write_text
    from kernel_dvfs_serving.deployment import as_yaml, recording_rules
    from kernel_dvfs_serving.packing import PARTS
    from kernel_dvfs_serving.profile import read_profile
    from kernel_dvfs_serving.system import Settings, check_spare
    from kernel_dvfs_serving.trace import dealt, of_loads, read_trace
    from kernel_dvfs_serving.tuned import LEVELS, Tuner, lines, second_for, written

    if (options.trace is None) == (not options.load):
        raise InputError("serving plan: give either a trace or, class by class, --load CLASS=TPS")
    levels = _percents(options.keep) if options.keep else LEVELS
    whole_trace = read_trace(options.trace) if options.trace else of_loads(_loads(options.load), LOADS_S, 1)
    trace, profile = dealt(whole_trace, options.cells), read_profile(options.profile)
    check_spare(options.servers, options.spare)
    own = Settings(servers=options.servers, spare=options.spare, gaps=options.gaps, preempts=options.preempts)
    replayer = _replayer(options, profile, own, slo_scale=options.slo_scale)
    with second_for(replayer, trace) as second:
        tuner = Tuner(replayer, trace, own, second=second)
        found = tuner.frontier(levels)
        if not found:
            told = f"{options.servers}" + (f" less {options.spare} spare" if options.spare else "")
            raise InputError(
                f"{trace.subject}: no static plan on up to {told} servers keeps {min(levels):g} % of the promises; "
                "give more servers or --cells, profile other degrees or clocks, or raise --slo-scale"
            )
        # the same servers or fewer, with the other router
        most = max(each["servers"] for each in found)
        packer = Tuner(replayer, trace, replace(own, servers=most), PARTS, second)
        packed = packer.frontier(levels)
    source = ", ".join(sorted(profile.sources))
    about = {
        "trace": options.trace or trace.subject,
        "profile": options.profile,
        "source": source,
        "cells": options.cells,
        "spare": options.spare,
        "slo_scale": options.slo_scale,
        "gaps": options.gaps,
    }
    plans = written(found, packed, about, profile.model)
    write_text(options.output, as_yaml(plans))
    if options.rules:
        write_text(options.rules, as_yaml(recording_rules(plans)))
    replays = f"replayed ({tuner.replays + packer.replays} times)"
    print(one_line(f"{trace.subject}, {profile.model} on {profile.gpu} ({source}), {replays}"))
    print("\n".join(lines(found, packed, levels, options.cells, options.spare)))


def _replayer(options: argparse.Namespace, profile: Profile, own: Settings, **columns: Any) -> Replayer:
    """The machine of a profile, with a note where it is fitted to measurements. Raises InputError."""
    from kernel_dvfs_serving.machine import MeasuredMachine, machine
    from kernel_dvfs_serving.replay import Replayer

    limits = {"max_batch": own.max_batch, "chunk_tokens": own.chunk_tokens}
    runs_on = machine(profile, options.gpu, options.model, options.host_s, **limits)
    if isinstance(runs_on, MeasuredMachine):
        tell(f"note: {runs_on.note()}")
    return Replayer(runs_on, profile, **columns)


def _percents(text: str) -> list[float]:
    try:
        return [number(1, 100, "percent")(each) for each in text.split(",")]
    except argparse.ArgumentTypeError as error:
        raise InputError(f"--keep {text}: {error}") from None


def _loads(given: list[str]) -> dict[str, float]:
    """{class: tokens/s}. Raises InputError."""
    from kernel_dvfs_serving.requests import CLASSES

    loads: dict[str, float] = {}
    for each in given:
        name, _, text = each.partition("=")
        if name not in CLASSES or name in loads:
            raise InputError(f"--load {each}: expected one of {', '.join(CLASSES)}, each once, as in MM=4000")
        try:
            loads[name] = number(0.001, 1e9, "tokens/s")(text)
        except argparse.ArgumentTypeError as error:
            raise InputError(f"--load {each}: {error}") from None
    return loads


# -- a study: experiments, tables, figures -----------------------------------------------------------------------------


def _study_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving study results/serving/mine --options '{...}'"
    parser.add_argument("folder", metavar="FOLDER", help="gets study.json")
    parser.add_argument("--options", required=True, metavar="JSON", help="as the workflow gives them")


def _study(options: argparse.Namespace) -> None:
    from kernel_dvfs_serving.study import make_study

    make_study(options.folder, json_object("--options", options.options))


def _experiment_arguments(parser: argparse.ArgumentParser) -> None:
    from kernel_dvfs_serving.study_plan import REPLAYED

    sharing = " and ".join(name for name, cores in REPLAYED.items() if cores > 1)
    parser.epilog = "example: kernel-dvfs serving experiment systems results/serving/sim-h100-sxm-llama2-70b/mine"
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(REPLAYED)}")
    parser.add_argument("folder", metavar="FOLDER", help="of the study; written to its experiments/")
    parser.add_argument(
        "--cores", type=whole(1, 1024), default=1, metavar="N", help=f"{sharing} may use two (default: 1)"
    )


def _experiment(options: argparse.Namespace) -> None:
    from kernel_dvfs.files import write_json
    from kernel_dvfs_serving.experiments import EXPERIMENTS
    from kernel_dvfs_serving.replay import lines
    from kernel_dvfs_serving.study import ServingStudy

    if options.name not in EXPERIMENTS:
        raise InputError(f"no experiment '{options.name}'; allowed: {', '.join(EXPERIMENTS)}")
    found = EXPERIMENTS[options.name](ServingStudy(options.folder, options.cores))
    write_json(Path(options.folder) / "experiments" / f"{options.name}.json", found)
    for each in found:
        tell(*(f"note: {line}" for line in (lines(each) if "system" in each else [])))


COMMANDS = {
    "profile": Command("power and latencies of a served model over load, simulated", _profile_arguments, _profile),
    "trace": Command("check and sum up a trace of requests, or make a synthetic one", _trace_arguments, _trace),
    "replay": Command("replay a trace through one serving system", _replay_arguments, _replay),
    "import": Command("a profile from a server's own benchmark and a log of power", _import_arguments, _import),
    "plan": Command("servers, degree and clock for a trace or given loads", _plan_arguments, _plan),
    "route": Command("hand requests to replicas by a plan's packing router", _route_arguments, _route),
    # called by rules
    "anchors": Command("published measurements, and the same simulated", _anchors_arguments, _anchors, False),
    "table1": Command("DynamoLLM's Table I, and the same simulated", _table1_arguments, _table1, False),
    "study": Command("a folder for a study of serving systems", _study_arguments, _study, False),
    "experiment": Command("run one experiment of a serving study", _experiment_arguments, _experiment, False),
}
