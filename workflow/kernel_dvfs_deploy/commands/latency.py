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
            say(f"{len(wanted)} changes, {protocol.repeats} times each; at most {_most_s(wanted, protocol):.0f} s")
            found["through"] = guard.through
            trials = latency.trials(guard, stamping, about["clocks"], wanted, protocol, say)
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
