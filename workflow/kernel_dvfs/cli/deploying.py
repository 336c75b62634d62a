"""Commands that play clocks on a real GPU, and measure what a change of them takes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernel_dvfs.cli import THROUGH
from kernel_dvfs.cli.arguments import COUNT, SEED, number, one_of, whole
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import writable, write_json, write_text
from kernel_dvfs.gpu.clocks import BASELINE, EXACT, LOCKS, RANGE, check_after, label, parse, parse_after

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from kernel_dvfs.deploy.command import Ran
    from kernel_dvfs.deploy.control import Control, Pair
    from kernel_dvfs.gpu.guard import Guard
    from kernel_dvfs.measurement.window import Probe


# --- apply ----------------------------------------------------------------------------------------------------------


def add_apply(parser: ArgumentParser) -> None:
    parser.usage = "kernel-dvfs apply (--pair CORE,MEM | --schedule S.json) [options] -- COMMAND ..."
    parser.epilog = "example: kernel-dvfs apply --pair 1410,auto --baseline -- python train.py"
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--pair",
        action="append",
        metavar="[PASS=]CORE,MEM",
        help="MHz or auto, each; PASS=..., several times: as the command marks its passes",
    )
    what.add_argument(
        "--schedule",
        metavar="S.json",
        help="of kernel-dvfs choose: one pair, or with --pass-level one a pass",
    )
    parser.add_argument(
        "--pass-level", action="store_true", help="change clocks as the command marks its passes (docs/deploy.md)"
    )
    parser.add_argument(
        "--power-limit",
        type=number(1, 10_000, "W"),
        metavar="W",
        help="also set a power limit, then give the old one back (root or the broker)",
    )
    parser.add_argument("--gpu", default="", metavar="GPU", help="UUID or index, if there are several")
    parser.add_argument("--baseline", action="store_true", help="run at auto first, and compare")
    parser.add_argument(
        "--lock",
        **one_of(LOCKS),
        default=RANGE,
        help="from the lowest clock to the target, or the target alone",
    )
    parser.add_argument("--through", default="auto", metavar="WAY", help=THROUGH)
    parser.add_argument(
        "--after",
        default="",
        metavar="core=LOWEST-HIGHEST,mem=LOWEST-HIGHEST",
        help="the site's own clocks, MHz, locked at the end instead of none; either or both",
    )
    parser.add_argument("--dry-run", action="store_true", help="set nothing: say what would be set, and measure")
    parser.add_argument("--share", action="store_true", help="run even if other processes compute on the GPU")
    parser.add_argument("--report", metavar="R.json", help="what was measured, as JSON")
    parser.add_argument("command_words", nargs="*", metavar="COMMAND", help="the program and its arguments, after --")


def run_apply(options: Namespace) -> int:
    from kernel_dvfs.deploy.control import Control, facts_of
    from kernel_dvfs.deploy.schedules import pass_pairs, run_pair
    from kernel_dvfs.gpu.guard import Guard
    from kernel_dvfs.measurement.real.preflight import check_board

    words = options.command_words
    if not words:
        raise InputError("apply: no command; write it after --, as in: kernel-dvfs apply --pair 1470,auto -- ./train")
    if options.pass_level and not options.schedule:
        raise InputError("apply: --pass-level needs --schedule with a pair for each pass")
    given = _given_pairs(options.pair or [])
    options.pass_level = options.pass_level or bool(given and "" not in given)
    if options.report:  # before hours are spent
        writable(options.report)
    about = facts_of(options.gpu.removeprefix("nvml:"))
    wanted: Mapping[str, Pair]
    if options.pass_level:
        wanted = given or pass_pairs(options.schedule, about)
    else:
        wanted = {"run": given[""] if given else run_pair(options.schedule, about)}

    report: dict[str, Any] = {
        "gpu": {key: about[key] for key in ("name", "uuid", "slug")},
        "command": words,
        "runs": {},
    }
    after = parse_after(options.after)
    check_after(about["clocks"], after, "--after")
    mode = "dry-run" if options.dry_run else "lock"
    with Guard(about["uuid"], after, mode, _apply_say, options.through) as guard:
        control = Control(guard, about, options.lock == EXACT, options.dry_run)
        limit = "" if options.power_limit is None else f" under {options.power_limit:g} W"
        for name, own in wanted.items():
            control.check(own, options.schedule or f"--pair {' '.join(options.pair)}")
            if options.dry_run:
                _apply_say(f"dry run: {name} would be asked for {label(own)}{limit}; nothing is set")
        check_board(guard.board, options.share, _apply_say)
        control.announce("a command at " + ", ".join(sorted({label(own) for own in wanted.values()})))
        locked = [own for own in wanted.values() if own != BASELINE]
        if locked and not options.dry_run:
            # the first set is the probe: where there is no permission, nothing is run at all
            control.ask(locked[0])
            control.to_auto()
        limit_mw = None if options.power_limit is None else round(1000 * options.power_limit)
        if limit_mw is not None and not options.dry_run:
            guard.limit_power(limit_mw)
            guard.limit_power(None)
        if not options.share:
            report["probe"] = _probed(about, after, options.dry_run)
        code = _run_in_turn(options, guard, control, wanted, report, None if options.dry_run else limit_mw)
    if options.report:
        write_json(options.report, report)
    return code


def _given_pairs(words: Sequence[str]) -> dict[str, Pair]:
    """{pass: pair} of --pair PASS=CORE,MEM, or {"": pair} of one without a pass. Raises InputError."""
    found: dict[str, Pair] = {}
    for word in words:
        name, _, pair = word.rpartition("=")
        if name in found:
            what = f"pass {name}" if name else "the whole run"
            raise InputError(f"apply: --pair is given twice for {what}; once a pass, or once for all")
        found[name] = parse(pair)
    if "" in found and len(found) > 1:
        raise InputError(f"apply: --pair {' '.join(words)}: name the pass of each pair, as in forward=1470,auto")
    return found


def _probed(about: dict[str, Any], after: dict[str, list[int] | None], is_dry: bool) -> Probe | None:
    """The core clock under next to no load; None where it cannot be looked at. Raises InputError where it is locked;
    a dry run only says so, since it resets nothing either."""
    from kernel_dvfs.measurement.real import clock_probe

    top_mhz = clock_probe.top_mhz(about["clocks"], after)
    if not top_mhz:
        return None
    try:
        probe: Probe = {"core_mhz": clock_probe.probe_apart(about["uuid"], top_mhz), "top_mhz": top_mhz}
    except InputError as error:
        _apply_say(f"note: whether its clock is free was not looked at: {error}")
        return None
    if why := clock_probe.held(probe, about["compute_capability"]):
        line = f"GPU {about['uuid']}: not free: {why}; {clock_probe.remedy(about['uuid'])}"
        if not is_dry:
            raise InputError(line)
        _apply_say(f"note: {line}")
    return probe


def _run_in_turn(
    options: Namespace,
    guard: Guard,
    control: Control,
    wanted: Mapping[str, Pair],
    report: dict[str, Any],
    limit_mw: int | None,
) -> int:
    """Run the command at auto where that is asked for, then at its clocks. Returns its exit code; fills the report."""
    from dataclasses import asdict

    from kernel_dvfs.deploy.command import run_command

    base = None
    if options.baseline:
        base = run_command(guard.board, options.command_words)
        report["runs"]["auto"] = asdict(base)
        _apply_say(f"auto: {_apply_told(base)}")
        if base.code:
            _apply_say(f"the command failed at auto (exit code {base.code}); not run again")
            return base.code
    if limit_mw is not None:
        guard.limit_power(limit_mw)
        report["power_limit_w"] = limit_mw / 1000
    if options.pass_level:
        name, ran = "by pass", _run_by_pass(options, guard, control, wanted, report)
    else:
        pair = wanted["run"]
        ran = run_command(guard.board, options.command_words, before=lambda: control.ask(pair), after=control.to_auto)
        _warn_if_missed(ran, pair, options.dry_run)
        name = label(pair)
    report["runs"][name] = asdict(ran)
    _apply_say(f"{name}: {_apply_told(ran)}")
    if base and not ran.code:
        report["time_change_percent"] = 100 * (ran.time_s / base.time_s - 1)
        report["energy_change_percent"] = 100 * (ran.energy_j / base.energy_j - 1)
        _apply_say(
            f"against auto: time {report['time_change_percent']:+.2f} %, energy "
            f"{report['energy_change_percent']:+.2f} % (one run each: repeat before you rely on it)"
        )
    return ran.code


def _run_by_pass(
    options: Namespace, guard: Guard, control: Control, wanted: Mapping[str, Pair], report: dict[str, Any]
) -> Ran:
    """Run the command with clocks that follow the passes that it marks."""
    from kernel_dvfs.deploy.by_pass import ByPass
    from kernel_dvfs.deploy.command import run_command

    with ByPass(control, wanted) as following:
        ran = run_command(guard.board, options.command_words, following.environment, after=control.to_auto)
    _apply_say(following.summary())
    report["marks"] = following.marks
    if following.surprise:
        _apply_say(f"clocks went back to auto: {following.surprise}")
    elif not any(following.marks.values()):
        _apply_say("the command marked no pass: it ran at auto; see kernel_dvfs.deploy.mark")
    report["surprise"] = following.surprise
    return ran


def _apply_told(ran: Ran) -> str:
    core, mem = (f"{low}" if low == high else f"{low} to {high}" for low, _, high in (ran.core_mhz, ran.mem_mhz))
    held = f", held down in {100 * ran.throttled:.0f} % of the looks" if ran.throttled else ""
    return (
        f"{ran.time_s:.2f} s, {ran.energy_j:.1f} J ({ran.power_w:.0f} W over {ran.counted_s:.2f} s), core {core} MHz, "
        f"memory {mem} MHz{held}"
    )


def _warn_if_missed(ran: Ran, pair: Pair, dry_run: bool) -> None:
    """A clock that is asked for may not be reached: say so where the looks saw another."""
    from kernel_dvfs.measurement.verdict import is_reached

    for domain, seen, asked in (("core", ran.core_mhz[1], pair[0]), ("memory", ran.mem_mhz[1], pair[1])):
        if not dry_run and not is_reached(asked, seen):
            _apply_say(
                f"asked for {domain} {asked} MHz, but it ran at {seen} MHz: throttled, idle, or folded by this GPU"
            )


def _apply_say(line: str) -> None:
    # stdout is the command's
    print(f"kernel-dvfs: {line}", file=sys.stderr, flush=True)


# --- tune -----------------------------------------------------------------------------------------------------------


def add_tune(parser: ArgumentParser) -> None:
    parser.usage = "kernel-dvfs tune [--slack PERCENT] [--progress REGEX] [options] -- COMMAND ..."
    parser.epilog = "example: kernel-dvfs tune --slack 1 --progress 'iter (\\d+)' -- python train.py"
    parser.add_argument(
        "--slack", type=number(0, 50, "percent"), default=1.0, metavar="PERCENT", help="a step may be slower by (1)"
    )
    parser.add_argument(
        "--progress",
        metavar="REGEX",
        help="its first group is the step's number in what the command prints (default: the command marks steps)",
    )
    parser.add_argument("--gpu", default="", metavar="GPU,...", help="all GPUs of the training")
    parser.add_argument(
        "--minutes", type=number(0.1, 600, "minutes"), default=30.0, metavar="MIN", help="then a pair is kept (30)"
    )
    parser.add_argument(
        "--samples",
        type=whole(1, 10**9),
        default=0,
        metavar="N",
        help="samples a step of all ranks: tells joules a sample",
    )
    parser.add_argument(
        "--latency",
        metavar="L.json",
        help="of kernel-dvfs latency: marked passes get a pair each, where it allows, in as many minutes again",
    )
    parser.add_argument(
        "--block", type=number(1, 600, "seconds"), default=5.0, metavar="S", help="at one pair, in turn with auto (5)"
    )
    parser.add_argument("--through", default="auto", metavar="WAY", help=THROUGH)
    parser.add_argument("--dry-run", action="store_true", help="set nothing: measure auto, say what would be tried")
    parser.add_argument("--share", action="store_true", help="run even if other processes compute on the GPU")
    parser.add_argument("--report", metavar="R.json", help="what was found, as JSON")
    parser.add_argument("--page", metavar="P.html", help="the same as a page")
    parser.add_argument("command_words", nargs="*", metavar="COMMAND", help="the program and its arguments, after --")


def run_tune(options: Namespace) -> int:
    from kernel_dvfs.deploy.tune import tune_command

    if not options.command_words:
        raise InputError("tune: no command; write it after --, as in: kernel-dvfs tune --slack 1 -- python train.py")
    for path in filter(None, (options.report, options.page)):  # before hours are spent
        writable(path)
    code, found = tune_command(
        options.command_words,
        options.progress,
        options.slack,
        options.gpu,
        options.minutes,
        options.through,
        options.dry_run,
        options.share,
        _apply_say,
        options.block,
        options.samples,
        options.latency,
    )
    if options.report:
        write_json(options.report, found | {"command": options.command_words})
    if options.page:
        from kernel_dvfs.report.page.tune_page import make

        write_text(options.page, make(found))
    return code


# --- latency --------------------------------------------------------------------------------------------------------

CLOCK = whole(1, 20000)  # MHz


def add_latency(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs latency -o latency.json"
    parser.add_argument("--gpu", default="", metavar="GPU", help="UUID or index, if there are several")
    for domain in ("core", "mem"):
        parser.add_argument(
            f"--{domain}",
            nargs="+",
            type=CLOCK,
            default=[],
            metavar="MHZ",
            help="change between these, from each to each (default: lowest, middle, highest)",
        )
    parser.add_argument("--repeats", type=COUNT, default=10, metavar="N", help="trials of each change (default: 10)")
    parser.add_argument("--seed", type=SEED, default=1, metavar="N", help="of the order (default: 1)")
    parser.add_argument(
        "--step-us", type=number(5, 1000, "us"), default=20.0, metavar="US", help="from stamp to stamp (20)"
    )
    parser.add_argument(
        "--limit",
        type=number(0.05, 10, "seconds"),
        default=1.0,
        metavar="S",
        help="a later change counts as missed (default: 1)",
    )
    parser.add_argument(
        "--lock",
        **one_of(LOCKS),
        default=RANGE,
        help="from the lowest clock to the target, or the target alone",
    )
    parser.add_argument(
        "--after",
        default="",
        metavar="core=LOWEST-HIGHEST,mem=LOWEST-HIGHEST",
        help="the site's own clocks, MHz, locked at the end instead of none; either or both",
    )
    parser.add_argument("--through", default="auto", metavar="WAY", help=THROUGH)
    parser.add_argument("--share", action="store_true", help="run even if other processes compute on the GPU")
    parser.add_argument("--dry-run", action="store_true", help="set nothing: write stamps at the present clocks")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="L.json",
        help="a table (.csv) goes beside it",
    )


def run_latency(options: Namespace) -> None:
    from dataclasses import asdict
    from pathlib import Path

    from kernel_dvfs.deploy.control import facts_of
    from kernel_dvfs.gpu.guard import Guard
    from kernel_dvfs.gpu.setters import choice
    from kernel_dvfs.measurement import latency_file
    from kernel_dvfs.measurement.real import latency, loads, preflight

    if Path(options.output).suffix != ".json":
        raise InputError(f"-o {options.output}: expected a name that ends in .json")
    protocol = latency.Protocol(
        repeats=options.repeats,
        seed=options.seed,
        step_s=1e-6 * options.step_us,
        limit_s=options.limit,
        lock=options.lock,
    )
    after = parse_after(options.after)
    choice.check(options.through, after, one_clock_alone=not options.dry_run)
    about = facts_of(options.gpu.removeprefix("nvml:"))
    wanted = latency.transitions(about["clocks"], options.core, options.mem)
    if not wanted:
        raise InputError("latency: a change needs two different clocks of --core or of --mem")
    check_after(about["clocks"], after, "--after")
    started_utc = latency.utc()
    with Guard(about["uuid"], after, "dry-run" if options.dry_run else "lock", _latency_say, options.through) as guard:
        preflight.check_board(guard.board, options.share, _latency_say)
        stamping = loads.open_stamping(guard.nvml, about["uuid"])
        gpu: dict[str, Any] = {key: about[key] for key in ("name", "uuid", "driver", "vbios", "power_limit_mw", "ecc")}
        gpu["persistence"] = guard.board.persistence()
        found: dict[str, Any] = {
            "gpu": gpu | {key: guard.nvml.versions[key] for key in ("nvml", "binding", "cuda")},
            "kernels": stamping.facts,
            "protocol": asdict(protocol),
            "started_utc": started_utc,
        }
        if options.dry_run:
            quiet = latency.dry_run(guard, stamping, about["clocks"], protocol)
        else:
            guard.announce("changes of clocks, to measure how long they take")
            preflight.check_permission(guard, about["clocks"])
            _latency_say(
                f"{len(wanted)} changes, {protocol.repeats} times each; at most {_most_s(wanted, protocol):.0f} s"
            )
            found["through"] = guard.through
            trials = latency.trials(guard, stamping, about["clocks"], wanted, protocol, _latency_say)
    found["ended_utc"] = latency.utc()
    if options.dry_run:
        found |= {"schema": latency_file.SCHEMA, "is_dry_run": True, "quiet": quiet}
        lines = _quiet_lines(quiet)
    else:
        found = latency_file.content(found, trials)
        write_text(str(Path(options.output).with_suffix(".csv")), latency_file.as_csv(found))
        lines = _lines(found)
    write_json(options.output, found)
    for line in lines:
        print(line)


def _most_s(wanted: list[Any], protocol: Any) -> float:
    return len(wanted) * protocol.repeats * (2 * protocol.limit_s + protocol.before_s)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """A line a domain: distributions, not means."""
    for domain, own in found["domains"].items():
        missed = f", {own['missed']} missed" if own["missed"] else ""
        if not own["n"]:
            yield f"{domain}: no change was seen to land{missed}; the file says why, trial by trial"
            continue
        told = "; ".join(
            f"{word} {_latency_told(own[name])}"
            for name, word in (
                ("call_s", "the driver's call"),
                ("first_effect_s", "first effect"),
                ("settled_s", "settled"),
                ("stall_s", "kernel stood still"),
            )
        )
        yield f"{domain}, ms as median (5 to 95 %, most) of {own['n']} changes{missed}: {told}"


def _latency_told(known: dict[str, float]) -> str:
    median, low, high, most = (f"{1e3 * known[name]:.3g}" for name in ("median", "p5", "p95", "max"))
    return f"{median} ({low} to {high}, {most})"


def _quiet_lines(quiet: dict[str, dict[str, Any]]) -> Iterator[str]:
    for domain, own in quiet.items():
        pace = f"{1e3 * own['pace']:.0f} MHz counted" if domain == "core" else f"{own['pace']:.0f} GB/s read"
        yield (
            f"dry run, nothing was set; {domain}: a stamp each {1e6 * own['step_s']:.1f} us (longest gap "
            f"{1e6 * own['longest_gap_s']:.1f} us more), {pace} +- {100 * own['scatter_share']:.2f} % a step, NVML "
            f"shows {own['nvml_mhz']} MHz, a look at it takes {1e3 * own['nvml_read_s']:.3f} ms"
        )


def _latency_say(line: str) -> None:
    print(f"kernel-dvfs: {line}", file=sys.stderr, flush=True)
