"""`kernel-dvfs apply`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kernel_dvfs.cli import THROUGH
from kernel_dvfs.cli.arguments import number, one_of
from kernel_dvfs.measurement.real import clock_probe
from kernel_dvfs.measurement.real.watch import UNFIT
from kernel_dvfs_clocks.clocks import BASELINE, EXACT, LOCKS, RANGE, check_after, label, parse, parse_after
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import writable, write_json
from kernel_dvfs_clocks.guard import Guard
from kernel_dvfs_clocks.nvml.facts import facts_of
from kernel_dvfs_deploy.by_pass import ByPass
from kernel_dvfs_deploy.command import run_command
from kernel_dvfs_deploy.commands.shared import say
from kernel_dvfs_deploy.control import Control
from kernel_dvfs_deploy.schedules import pass_pairs, run_pair, slows
from kernel_dvfs_deploy.step_energy import StepEnergy

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kernel_dvfs.measurement.window import ClockProbe
    from kernel_dvfs_deploy.command import Ran
    from kernel_dvfs_deploy.control import Pair
    from kernel_dvfs_deploy.step_energy import Stepped


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = "kernel-dvfs apply (--pair CORE,MEM | --schedule S.json) [options] -- COMMAND ..."
    parser.epilog = "example: kernel-dvfs apply --pair 1410,auto --baseline -- python train.py"
    clocks = parser.add_mutually_exclusive_group(required=True)
    clocks.add_argument(
        "--pair",
        action="append",
        metavar="[PASS=]CORE,MEM",
        help="MHz or auto, each; several times with PASS=",
    )
    clocks.add_argument(
        "--schedule",
        metavar="S.json",
        help="of choose: one pair, or with --pass-level one a pass",
    )
    parser.add_argument(
        "--pass-level", action="store_true", help="change clocks as the command marks its passes (docs/deploy.md)"
    )
    parser.add_argument(
        "--power-limit",
        type=number(1, 10_000, "W"),
        metavar="W",
        help="also set a power limit (root or the broker)",
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


def run(options: Namespace) -> int:
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
    if note := slows(about, wanted.values()):
        say(f"note: {note}")
    with Guard(about["uuid"], after, mode, say, options.through) as guard:
        control = Control(guard, about, options.lock == EXACT, options.dry_run)
        limit = "" if options.power_limit is None else f" under {options.power_limit:g} W"
        for name, pair in wanted.items():
            control.check(pair, options.schedule or f"--pair {' '.join(options.pair)}")
            if options.dry_run:
                say(f"dry run: {name} would be asked for {label(pair)}{limit}; nothing is set")
        control.preflight(options.share, say, list(wanted.values()))
        control.announce("a command at " + ", ".join(sorted(set(map(label, wanted.values())))))
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
    """Return {pass: pair} of --pair PASS=CORE,MEM, or {"": pair} of one without a pass. Raises InputError."""
    pairs: dict[str, Pair] = {}
    for word in words:
        name, _, pair = word.rpartition("=")
        if name in pairs:
            what = f"pass {name}" if name else "the whole run"
            raise InputError(f"apply: --pair is given twice for {what}; once a pass, or once for all")
        pairs[name] = parse(pair)
    if "" in pairs and len(pairs) > 1:
        raise InputError(f"apply: --pair {' '.join(words)}: name the pass of each pair, as in forward=1470,auto")
    return pairs


def _probed(about: dict[str, Any], after: dict[str, list[int] | None], is_dry: bool) -> ClockProbe | None:
    """Return the core clock under next to no load; None where it cannot be looked at. Raises InputError where it is
    locked; a dry run only says so, since it resets nothing either."""
    top_mhz = clock_probe.top_mhz(about["clocks"], after)
    if not top_mhz:
        return None
    try:
        probe: ClockProbe = {"core_mhz": clock_probe.probe_apart(about["uuid"], top_mhz), "top_mhz": top_mhz}
    except InputError as error:
        say(f"note: whether its clock is free was not looked at: {error}")
        return None
    if why := clock_probe.held(probe, about["compute_capability"]):
        line = f"GPU {about['uuid']}: not free: {why}; {clock_probe.remedy(about['uuid'])}"
        if not is_dry:
            raise InputError(line)
        say(f"note: {line}")
    return probe


def _run_in_turn(
    options: Namespace,
    guard: Guard,
    control: Control,
    wanted: Mapping[str, Pair],
    report: dict[str, Any],
    limit_mw: int | None,
) -> int:
    """Run the command at auto where that is asked for, then at its clocks. Returns its exit code; fills the report.

    Raises InputError where nothing can be concluded from the run at auto: the command is not run again then.
    """
    base, base_step = None, None
    if options.baseline:
        base, base_step = _run_and_say(options, control, {}, BASELINE, report, "auto")
        if base.code:
            say(f"the command failed at auto (exit code {base.code}); not run again")
            return base.code
        if base.verdict in UNFIT:
            raise InputError(f"apply: nothing can be compared with the run at auto ({base.verdict}); not run again")
    if limit_mw is not None:
        guard.limit_power(limit_mw)
        report["power_limit_w"] = limit_mw / 1000
    if options.pass_level:
        ran, step = _run_and_say(options, control, wanted, BASELINE, report, "by pass")
    else:
        ran, step = _run_and_say(options, control, {}, wanted["run"], report, label(wanted["run"]))
    if base and not ran.code and ran.verdict in UNFIT:
        say(f"not compared with auto: nothing can be concluded from that run ({ran.verdict})")
    elif base and base.energy_j and not ran.code and ran.energy_j:
        report["time_change_percent"] = 100 * (ran.time_s / base.time_s - 1)
        report["energy_change_percent"] = 100 * (ran.energy_j / base.energy_j - 1)
        a_step = ""
        if base_step and step:
            report["step_time_change_percent"] = 100 * (step.step_s / base_step.step_s - 1)
            report["step_energy_change_percent"] = 100 * (step.step_j / base_step.step_j - 1)
            a_step = (
                f"; a step: time {report['step_time_change_percent']:+.2f} %, energy "
                f"{report['step_energy_change_percent']:+.2f} %"
            )
        say(
            f"against auto: time {report['time_change_percent']:+.2f} %, energy "
            f"{report['energy_change_percent']:+.2f} %{a_step} (one run each: repeat before you rely on it)"
        )
    return ran.code


def _run_and_say(
    options: Namespace, control: Control, passes: Mapping[str, Pair], pair: Pair, report: dict[str, Any], name: str
) -> tuple[Ran, Stepped | None]:
    """Run the command at a pair, with clocks that follow its marks where passes have pairs; say and return what came of
    it, and of a step where it tells its steps."""
    steps = StepEnergy(control.board.energy_mj, control.period_s)
    with ByPass(control, passes, steps.step) as following:
        ran = run_command(control, options.command_words, pair, following.environment)
    report["runs"][name] = asdict(ran)
    if passes:
        say(following.summary())
        report["marks"] = following.marks
        if following.surprise:
            say(f"clocks went back to auto: {following.surprise}")
        elif not any(following.marks.values()):
            say("the command marked no pass: it ran at auto; see kernel_dvfs_deploy.mark")
        report["surprise"] = following.surprise
    say(f"{name}: {_run_in_words(ran)}")
    if step := steps.stepped:
        report["runs"][name] |= asdict(step)
        say(
            f"{name}: a step takes {step.step_s:.4g} s and {step.step_j:.4g} J (within {step.within_percent:.1f} %; "
            f"{step.steps} steps)"
        )
    return ran, step


def _run_in_words(ran: Ran) -> str:
    parts = [f"{ran.time_s:.2f} s"]
    if ran.energy_j is not None:
        parts.append(f"{ran.energy_j:.1f} J ({ran.energy_j / ran.counted_s:.0f} W over {ran.counted_s:.2f} s)")
    for domain, seen in (("core", ran.core_mhz), ("memory", ran.mem_mhz)):
        if seen:
            parts.append(f"{domain} {seen[0]:g}{f' to {seen[2]:g}' * (seen[0] != seen[2])} MHz")
    return f"{', '.join(parts)}: {'; '.join([ran.verdict, *ran.reasons])}"
