"""What cutting a captured step costs: the step in pieces, as a player launches it, against the step as it was captured.

Sets nothing on the GPU: changes are no-ops (deploy.play, dry_run). Auto and pieces run in turn; printed are the change
of time and energy with their 95 % intervals, and whether the step leaves the same bits.

    kernel-dvfs build --graph on
    python experiments/benchmarks/gpu_play.py experiments/benchmarks/own_steps/steps.py:gpt_eager --changes 2 8 32
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from kernel_dvfs.layout import ITERATION_SCHEDULE
from kernel_dvfs_clocks.files import write_json
from kernel_dvfs_deploy import play
from kernel_dvfs_deploy.playing import measured_launches

AUTO = {"core_mhz": "auto", "mem_mhz": "auto"}


def schedule(step, changes):
    """An iteration schedule of so many changes, evenly spread, each from auto to auto."""
    names = [target.id for target in measured_launches(step)]
    kernels = list(dict.fromkeys(names))
    time_s = {target.id: 1e-6 * (target.time_us or target.alone_us or 1000.0) for target in step.targets}
    # back at the first pair at the end, so their number is even
    count = min(changes, len(names)) // 2 * 2
    at = [number * len(names) // count for number in range(count)]
    pair = [sum(launch >= change for change in at) % 2 for launch in range(len(names))]
    return {
        "schema": ITERATION_SCHEDULE,
        "gpu": {"kind": "nvml", "name": "any", "slug": "any"},
        "workload": {"name": step.name, "step": {"checksum": step.checksum}},
        "switching": {"behaviour": "ahead", "latency_s": 0.0, "jitter": 0.0},
        "pairs": [AUTO, AUTO],
        "first": 0,
        "kernels": kernels,
        "launches": [[kernels.index(name), pair[launch], time_s[name]] for launch, name in enumerate(names)],
        "changes": [[launch, (number + 1) % 2] for number, launch in enumerate(at)],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="FILE.py:FUNCTION", help="what makes the step")
    parser.add_argument("--changes", type=int, nargs="+", default=[2, 8, 32], help="of clocks a step (default: 2 8 32)")
    parser.add_argument("--repeats", type=int, default=5, help="of auto, pieces, pieces, auto (default: 5)")
    parser.add_argument("--block-s", type=float, default=2.0, help="of each (default: 2)")
    parser.add_argument("--results", default="results", help="the folder with the native layer (default: results)")
    options = parser.parse_args()

    import kernel_dvfs
    from kernel_dvfs_step.framework import function_of

    captured = kernel_dvfs.capture(function_of(options.source)(), results_dir=options.results)
    record = captured.record
    print(f"{options.source} on {record.device['name']}: {len(record.nodes)} nodes, {len(record.order)} launches")
    with tempfile.TemporaryDirectory() as folder:
        for changes in options.changes:
            path = Path(folder) / f"{changes}.json"
            write_json(path, schedule(record, changes))
            how = {"dry_run": True, "repeats": options.repeats, "block_s": options.block_s, "say": lambda line: None}
            with play(captured, path, **how) as run:
                print(run.certificate, flush=True)


if __name__ == "__main__":
    main()
