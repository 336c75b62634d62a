"""`kernel-dvfs apply`: run a command at chosen clocks, give them back whatever happens, say what it took."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kernel_dvfs.cli import THROUGH
from kernel_dvfs.cli.arguments import one_of
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_json
from kernel_dvfs.gpu.clocks import BASELINE, EXACT, LOCKS, RANGE, check_after, label, parse, parse_after

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kernel_dvfs.deploy.command import Ran
    from kernel_dvfs.deploy.control import Control, Pair
    from kernel_dvfs.gpu.guard import Guard


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = "kernel-dvfs apply (--pair CORE,MEM | --schedule S.json) [options] -- COMMAND ..."
    parser.epilog = "example: kernel-dvfs apply --pair 1470,5001 --baseline -- python train.py"
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--pair", metavar="CORE,MEM", help="MHz or auto, each")
    what.add_argument(
        "--schedule",
        metavar="S.json",
        help="a schedule of kernel-dvfs choose: one pair for all, or with --pass-level one for each pass",
    )
    parser.add_argument(
        "--pass-level", action="store_true", help="change clocks as the command marks its passes (docs/playing.md)"
    )
    parser.add_argument("--gpu", default="", metavar="GPU", help="UUID or index, if there are several")
    parser.add_argument("--baseline", action="store_true", help="run the command at auto first, and compare")
    parser.add_argument(
        "--lock",
        **one_of(LOCKS),
        default=RANGE,
        help="lock from the lowest clock up to the target, or the target alone",
    )
    parser.add_argument("--through", default="auto", metavar="WAY", help=THROUGH)
    parser.add_argument(
        "--after",
        default="",
        metavar="core=LOWEST-HIGHEST,mem=LOWEST-HIGHEST",
        help="leave the site's own clocks locked at the end instead of none, MHz; either may be left out",
    )
    parser.add_argument("--dry-run", action="store_true", help="set nothing: say what would be requested, and measure")
    parser.add_argument("--share", action="store_true", help="run even if other processes compute on the GPU")
    parser.add_argument("--report", metavar="R.json", help="also write what was measured, as JSON")
    parser.add_argument("command_words", nargs="*", metavar="COMMAND", help="the program and its arguments, after --")


def run(options: Namespace) -> int:
    from kernel_dvfs.deploy.control import Control, facts_of
    from kernel_dvfs.deploy.schedules import pass_pairs, run_pair
    from kernel_dvfs.gpu.guard import Guard
    from kernel_dvfs.measurement.real.preflight import check_board

    words = options.command_words
    if not words:
        raise InputError("apply: no command; write it after --, as in: kernel-dvfs apply --pair 1470,auto -- ./train")
    if options.pass_level and not options.schedule:
        raise InputError("apply: --pass-level needs --schedule with a pair for each pass")
    pair = parse(options.pair) if options.pair else None
    about = facts_of(options.gpu.removeprefix("nvml:"))
    wanted: Mapping[str, Pair]
    if options.pass_level:
        wanted = pass_pairs(options.schedule, about)
    else:
        wanted = {"run": pair or run_pair(options.schedule, about)}

    report: dict[str, Any] = {
        "gpu": {key: about[key] for key in ("name", "uuid", "slug")},
        "command": words,
        "runs": {},
    }
    after = parse_after(options.after)
    check_after(about["clocks"], after, "--after")
    mode = "dry-run" if options.dry_run else "lock"
    with Guard(about["uuid"], after, mode, _say, options.through) as guard:
        control = Control(guard, about, options.lock == EXACT, options.dry_run)
        for name, own in wanted.items():
            control.check(own, options.schedule or f"--pair {options.pair}")
            if options.dry_run:
                _say(f"dry run: {name} would be asked for {label(own)}; nothing is set")
        check_board(guard.board, options.share, _say)
        control.announce("a command at " + ", ".join(sorted({label(own) for own in wanted.values()})))
        locked = [own for own in wanted.values() if own != BASELINE]
        if locked and not options.dry_run:
            # the first set is the probe: where there is no permission, nothing is run at all
            control.ask(locked[0])
            control.to_auto()
        code = _run_in_turn(options, guard, control, wanted, report)
    if options.report:
        write_json(options.report, report)
    return code


def _run_in_turn(
    options: Namespace, guard: Guard, control: Control, wanted: Mapping[str, Pair], report: dict[str, Any]
) -> int:
    """Run the command at auto where that is asked for, then at its clocks. Returns its exit code; fills the report."""
    from kernel_dvfs.deploy.command import run_command

    base = None
    if options.baseline:
        base = run_command(guard.board, options.command_words)
        report["runs"]["auto"] = asdict(base)
        _say(f"auto: {_told(base)}")
        if base.code:
            _say(f"the command failed at auto (exit code {base.code}); not run again")
            return base.code
    if options.pass_level:
        name, ran = "by pass", _run_by_pass(options, guard, control, wanted, report)
    else:
        pair = wanted["run"]
        ran = run_command(guard.board, options.command_words, before=lambda: control.ask(pair), after=control.to_auto)
        _warn_if_missed(ran, pair, options.dry_run)
        name = label(pair)
    report["runs"][name] = asdict(ran)
    _say(f"{name}: {_told(ran)}")
    if base and not ran.code:
        report["time_change_percent"] = 100 * (ran.time_s / base.time_s - 1)
        report["energy_change_percent"] = 100 * (ran.energy_j / base.energy_j - 1)
        _say(
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
    _say(following.summary())
    report["marks"] = following.marks
    if following.surprise:
        _say(f"clocks went back to auto: {following.surprise}")
    elif not any(following.marks.values()):
        _say("the command marked no pass: it ran at auto; see kernel_dvfs.deploy.mark")
    report["surprise"] = following.surprise
    return ran


def _told(ran: Ran) -> str:
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
            _say(f"asked for {domain} {asked} MHz, but it ran at {seen} MHz: throttled, idle, or folded by this GPU")


def _say(line: str) -> None:
    # stdout is the command's
    print(f"kernel-dvfs: {line}", file=sys.stderr, flush=True)
