"""`kernel-dvfs step trace`."""

from __future__ import annotations

import argparse

from kernel_dvfs_clocks.files import compact_json, write_text
from kernel_dvfs_hooks.trace import trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs step trace profile.parquet --schedule schedule.json -o trace.json"
    parser.add_argument("profile", metavar="P.parquet", help="of a study or of kernel-dvfs import")
    parser.add_argument("--schedule", metavar="S.json", help="of choose: its clocks beside the baseline")
    parser.add_argument("--order", default="profile", metavar="O.json", help="kernel ids, one a launch (the profile's)")
    parser.add_argument("-o", "--output", required=True, metavar="TRACE.json", help="for ui.perfetto.dev, or HTA")


def run(options: argparse.Namespace) -> None:
    content = trace(options.profile, options.schedule, options.order)
    write_text(options.output, compact_json(content) + "\n")
    for process in sorted({event["pid"] for event in content["traceEvents"]}):
        events = [event for event in content["traceEvents"] if event["pid"] == process]
        (title,) = (event["args"]["name"] for event in events if event["name"] == "process_name")
        slices = [event for event in events if event["ph"] == "X"]
        energy_j = sum(event["args"]["energy_j"] for event in slices)
        print(f"{title}: {len(slices)} launches, {sum(event['dur'] for event in slices) / 1e6:.4g} s, {energy_j:.4g} J")
