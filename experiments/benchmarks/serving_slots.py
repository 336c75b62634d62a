"""On what the saving of a serving system depends: the length of a load slot, and the host's time per step.

    python experiments/benchmarks/serving_slots.py conv.csv synthetic-bursty-coding.csv \
        [--host-s 0.002,0.018] [-o slots.csv]

For each host time a profile is simulated (half a minute of CPU), and DynamoLLM runs with each slot length. Its energy
of a token served in time is compared with SinglePool on all servers (as published), on the servers that such a slot
asks for, and on the fewest that keep 99 % of the promises, which no slot decides. One row each; negative = saved; empty
where the baseline breaks the promise; all simulated.
"""

import argparse
import csv
import os
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from kernel_dvfs_serving.experiments import SLOTS_S, keeps, least_servers, slot_servers
from kernel_dvfs_serving.machine import machine
from kernel_dvfs_serving.make_profile import profile_rows
from kernel_dvfs_serving.profile import read_profile, write_profile
from kernel_dvfs_serving.replay import Replayer, outcome
from kernel_dvfs_serving.requests import CLASSES
from kernel_dvfs_serving.system import BASELINE, Settings
from kernel_dvfs_serving.trace import read_trace

GPU, MODEL = "h100_sxm", "llama2-70b"
CLOCKS_MHZ = [800, 1200, 1600, 1980]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--servers", type=int, default=12)
    parser.add_argument("--host-s", default="0.002,0.018")
    parser.add_argument("-o", "--output", metavar="OUT.csv")
    options = parser.parse_args()
    rows = []
    for host_s in map(float, options.host_s.split(",")):
        # always made here: one that lies about may be of another engine
        with TemporaryDirectory() as folder:
            path = Path(folder) / "profile.csv"
            limits = {"requests": 500, "seed": 1, "max_batch": 256, "chunk_tokens": 512, "host_s": host_s}
            write_profile(path, profile_rows(GPU, MODEL, [2, 4, 8], CLOCKS_MHZ, CLASSES, **limits))
            profile = read_profile(path)
        replayer = Replayer(machine(profile, GPU, MODEL, host_s), profile)
        for name in options.traces:
            trace, own = read_trace(name), Settings(servers=options.servers)

            def spent(system: str, settings: Settings, replayer=replayer, trace=trace) -> dict:
                return outcome(replayer.run(trace, system, settings))

            everything, sized = spent(BASELINE, replace(own, pools=1)), least_servers(replayer, trace, own)
            for slot_s in SLOTS_S:
                settings = replace(own, load_slot_s=slot_s)
                count = slot_servers(replayer, trace, settings)
                by_slot = spent(BASELINE, replace(settings, servers=count, pools=1))
                ours = spent("DynamoLLM", settings)

                def change(reference: dict, ours=ours, own=own) -> float | None:
                    if not keeps(reference, own):
                        return None  # a baseline that breaks the promise: nothing to save against
                    return 100 * (ours["j_per_token_in_time"] / reference["j_per_token_in_time"] - 1)

                rows.append(
                    {
                        "trace": Path(name).stem,
                        "host_s": host_s,
                        "load_slot_s": slot_s,
                        "sized_servers": sized["servers"],
                        "slot_servers": count,
                        "slot_baseline_kept_percent": by_slot["kept_percent"],
                        "j_per_token_in_time": ours["j_per_token_in_time"],
                        "kept_percent": ours["kept_percent"],
                        "rejected": ours["rejected"],
                        "promise_kept": keeps(ours, own),
                        "of_all_servers_percent": change(everything),
                        "of_slot_servers_percent": change(by_slot),
                        "of_sized_percent": change(sized),
                    }
                )
                cells = {key: f"{cell:.4g}" if isinstance(cell, float) else cell for key, cell in rows[-1].items()}
                print(", ".join(f"{key} {cell}" for key, cell in cells.items()), flush=True)
    if options.output:
        with open(options.output, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
