"""`kernel-dvfs hooks pods`."""

from __future__ import annotations

import argparse

import yaml

from kernel_dvfs.cli.arguments import number, whole
from kernel_dvfs_clocks.clocks import parse_after
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_hooks.pods import client_pod, daemon_set


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "kernel-dvfs hooks pods --image IMAGE --allow UID,... [options] [-- COMMAND ...]"
    parser.epilog = (
        "example: kernel-dvfs hooks pods --image registry/kernel-dvfs@sha256:... --allow 1000 | kubectl apply -f -"
    )
    parser.add_argument("--image", required=True, help="of this repository's Dockerfile; with COMMAND, of your own")
    parser.add_argument(
        "--allow", default="", metavar="UID,...", help="numbers of users that pods run as; 0 always may"
    )
    parser.add_argument("--after", default="", metavar="core=LOWEST-HIGHEST,...", help="as of the broker")
    parser.add_argument(
        "--hours", type=number(0.001, 10_000, "hours"), default=168.0, metavar="H", help="a pod's longest time (168)"
    )
    parser.add_argument("--namespace", default="kube-system", help="of the DaemonSet (kube-system)")
    parser.add_argument(
        "--runtime-class", default="nvidia", metavar="NAME", help="that brings NVML (nvidia); '' for none"
    )
    parser.add_argument("--user", type=whole(0, 2**31), default=1000, metavar="UID", help="that COMMAND runs as (1000)")
    parser.add_argument(
        "command_words", nargs="*", metavar="COMMAND", help="print a pod that runs this instead, after --"
    )


def run(options: argparse.Namespace) -> None:
    if options.command_words:
        manifest = client_pod(options.image, options.command_words, options.user)
    else:
        # names and groups are the node's, and the broker's container knows none of them
        if not all(word.isdecimal() and int(word) < 2**32 for word in options.allow.split(",")):
            raise InputError(f"--allow {options.allow}: expected numbers of users with commas, as in 1000,1001")
        parse_after(options.after)
        manifest = daemon_set(
            *(options.image, options.allow, options.after, options.hours),
            *(options.namespace, options.runtime_class),
        )
    print(yaml.safe_dump(manifest, sort_keys=False), end="")
