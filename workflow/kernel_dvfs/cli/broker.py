"""`kernel-dvfs broker`: the daemon that sets GPU clocks for named users of this machine, or its systemd unit."""

from __future__ import annotations

import argparse

from kernel_dvfs.gpu.clocks import parse_after


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs broker --allow alice,%gpu-users, as root"
    parser.add_argument(
        "--allow", required=True, metavar="USER,...", help="names, numbers, and %%groups of users; root always may"
    )
    parser.add_argument(
        "--after",
        default="",
        metavar="core=LOWEST-HIGHEST,mem=LOWEST-HIGHEST",
        help="what to leave locked after each client instead of none, MHz; either may be left out",
    )
    parser.add_argument("--unit", action="store_true", help="print a systemd unit for these options instead")


def run(options: argparse.Namespace) -> None:
    from kernel_dvfs.gpu import broker

    allow, after = broker.users(options.allow), parse_after(options.after)
    if options.unit:
        print(broker.unit(options.allow, options.after))
        return
    broker.serve(allow, after)
