"""`kernel-dvfs latency`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_dvfs.cli import THROUGH
from kernel_dvfs.cli.arguments import COUNT, SEED, number, one_of, whole
from kernel_dvfs.measurement import latency_file
from kernel_dvfs.measurement.real import latency, loads, preflight
from kernel_dvfs_clocks.clocks import AUTO, LOCKS, RANGE, check_after, parse_after
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_json, write_text
from kernel_dvfs_clocks.guard import Guard
from kernel_dvfs_clocks.nvml.facts import facts_of
from kernel_dvfs_clocks.setters import choice
from kernel_dvfs_deploy.commands.shared import say

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator


CLOCK = whole(1, 20000)  # MHz


def add_arguments(parser: ArgumentParser) -> None:
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


def run(options: Namespace) -> None:
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
    with Guard(about["uuid"], after, "dry-run" if options.dry_run else "lock", say, options.through) as guard:
        pairs = [] if options.dry_run else [(AUTO, mhz) for mhz in options.mem] or None
        about["clocks"], _ = preflight.check(guard, about["clocks"], options.share, say, pairs)
        wanted = latency.transitions(about["clocks"], options.core, options.mem)
        stamping = loads.open_stamping(guard.nvml, about["uuid"])
        gpu: dict[str, Any] = {key: about[key] for key in ("name", "uuid", "driver", "vbios", "power_limit_mw", "ecc")}
        gpu["persistence"] = guard.board.persistence()
        content: dict[str, Any] = {
            "gpu": gpu | {key: guard.nvml.versions[key] for key in ("nvml", "binding", "cuda")},
            "kernels": stamping.facts,
            "protocol": asdict(protocol),
            "started_utc": started_utc,
        }
        if options.dry_run:
            quiet = latency.dry_run(guard, stamping, about["clocks"], protocol)
        else:
            guard.announce("changes of clocks, to measure how long they take")
            say(f"{len(wanted)} changes, {protocol.repeats} times each; at most {_most_s(wanted, protocol):.0f} s")
            content["through"] = guard.through
            trials = latency.trials(guard, stamping, about["clocks"], wanted, protocol, say)
    content["ended_utc"] = latency.utc()
    if options.dry_run:
        content |= {"schema": latency_file.SCHEMA, "is_dry_run": True, "quiet": quiet}
        lines = _quiet_lines(quiet)
    else:
        content = latency_file.content(content, trials)
        write_text(str(Path(options.output).with_suffix(".csv")), latency_file.as_csv(content))
        lines = _lines(content)
    write_json(options.output, content)
    for line in lines:
        print(line)


def _most_s(wanted: list[Any], protocol: Any) -> float:
    return len(wanted) * protocol.repeats * (2 * protocol.limit_s + protocol.before_s)


def _lines(content: dict[str, Any]) -> Iterator[str]:
    """Yield a line a domain: distributions, not means."""
    for domain, summary in content["domains"].items():
        missed = f", {summary['missed']} missed" if summary["missed"] else ""
        if not summary["n"]:
            yield f"{domain}: no change was seen to land{missed}; the file says why, trial by trial"
            continue
        distributions = "; ".join(
            f"{word} {_in_words(summary[name])}"
            for name, word in (
                ("call_s", "the driver's call"),
                ("first_effect_s", "first effect"),
                ("settled_s", "settled"),
                ("stall_s", "kernel stood still"),
            )
        )
        yield f"{domain}, ms as median (5 to 95 %, most) of {summary['n']} changes{missed}: {distributions}"


def _in_words(distribution: dict[str, float]) -> str:
    median, low, high, most = (f"{1e3 * distribution[name]:.3g}" for name in ("median", "p5", "p95", "max"))
    return f"{median} ({low} to {high}, {most})"


def _quiet_lines(quiet: dict[str, dict[str, Any]]) -> Iterator[str]:
    for domain, stamps in quiet.items():
        pace = f"{1e3 * stamps['pace']:.0f} MHz counted" if domain == "core" else f"{stamps['pace']:.0f} GB/s read"
        yield (
            f"dry run, nothing was set; {domain}: a stamp each {1e6 * stamps['step_s']:.1f} us (longest gap "
            f"{1e6 * stamps['longest_gap_s']:.1f} us more), {pace} +- {100 * stamps['scatter_share']:.2f} % a step, "
            f"NVML shows {stamps['nvml_mhz']} MHz, a look at it takes {1e3 * stamps['nvml_read_s']:.3f} ms"
        )
