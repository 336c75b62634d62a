"""`kernel-dvfs broker`. Of root's it imports nothing before it has been looked at (kernel_dvfs_clocks.trust)."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli.arguments import number
from kernel_dvfs_clocks.clocks import parse_after
from kernel_dvfs_clocks.errors import InputError


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs broker --allow alice,%gpu-users, as root"
    does = parser.add_mutually_exclusive_group(required=True)
    does.add_argument("--allow", metavar="USER,...", help="names, numbers, and %%groups of users; root always may")
    does.add_argument("--list", action="store_true", help="say who has which GPU, and what is left locked")
    does.add_argument("--evict", metavar="UUID", help="take a GPU from its client, and free its clocks (root)")
    parser.add_argument(
        "--after",
        default="",
        metavar="core=LOWEST-HIGHEST,mem=LOWEST-HIGHEST",
        help="the site's own clocks, MHz, locked after each client instead of none",
    )
    parser.add_argument(
        "--hours",
        type=number(0.001, 10_000, "hours"),
        default=168.0,
        metavar="H",
        help="a client's longest time (168)",
    )
    parser.add_argument(
        "--allow-power",
        default="",
        metavar="USER,...",
        help="who of them may set a power limit, too (root)",
    )
    parser.add_argument("--lease", metavar="NAME", help="with --evict: only from this one of --list (default: any)")
    parser.add_argument("--unit", action="store_true", help="print a systemd unit instead")


def run(options: Namespace) -> None:
    from kernel_dvfs_clocks.broker import BrokerServer
    from kernel_dvfs_clocks.broker_unit import unit, users
    from kernel_dvfs_clocks.setters.broker import evict, listed

    if options.lease and not options.evict:
        raise InputError("--lease names what --evict ends; give --evict UUID, too")
    if options.list:
        for gpu in listed():
            has = f"{gpu['holder']}, since {gpu['since_utc']}, lease {gpu['lease']}" if gpu["holder"] else "free"
            print(f"GPU {gpu['uuid']}: {has}" + (f"; left: {gpu['left']}" if gpu["left"] else ""))
        return
    if options.evict:
        print(f"GPU {options.evict}: taken from {evict(options.evict, options.lease)}; its clocks are free")
        return
    allow, after = users(options.allow), parse_after(options.after)
    power = users(options.allow_power, "--allow-power")
    if options.unit:
        print(unit(options.allow, options.after, options.hours, options.allow_power))
        return
    BrokerServer(allow, after, 3600 * options.hours, power).serve()
