"""`kernel-dvfs hooks vllm`."""

from __future__ import annotations

import argparse
from collections import deque

from kernel_dvfs.cli.arguments import number, whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs hooks vllm --url http://localhost:8000/metrics --gpu 0,1 --listen 9401"
    parser.add_argument("--url", required=True, help="of its metrics: http://HOST:PORT/metrics")
    parser.add_argument("--gpu", default="", metavar="GPU,...", help="all boards of the server (the only one)")
    parser.add_argument(
        "--every", type=number(2.5, 3600, "seconds"), default=10.0, metavar="S", help="a line each (10)"
    )
    parser.add_argument("--minutes", type=number(0.01, 1e6, "minutes"), default=1e6, metavar="MIN", help="then end")
    out = parser.add_mutually_exclusive_group()
    out.add_argument("--listen", type=whole(1, 65535), metavar="PORT", help="for Prometheus, at this host alone")
    out.add_argument("-o", "--output", metavar="F.prom", help="for node_exporter's textfile collector")


def run(options: argparse.Namespace) -> None:
    # with packages that no other command needs
    from prometheus_client import start_http_server, write_to_textfile

    from kernel_dvfs_hooks import vllm

    exported: vllm.Exported | None = None
    seen: deque[vllm.ServerStretch] = deque(maxlen=vllm.MOST)
    if options.listen or options.output:
        exported = vllm.Exported()
    if exported and options.listen:
        start_http_server(options.listen, "127.0.0.1", exported.registry)
    stretches = vllm.stretches(options.url, options.gpu.split(","), options.every, 60 * options.minutes)
    for stretch, readers in stretches:
        seen.append(stretch)
        split = vllm.split(seen)
        if exported:
            exported.show(stretch, split, readers)
        if exported and options.output:
            write_to_textfile(options.output, exported.registry)
        print(vllm.line(stretch, split), flush=True)
