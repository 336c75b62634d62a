"""What trouble does to two given plans of a coding-like hour that neither was tuned on: a router's delay, KV caches
that grow with the answers (and pre-empt where they are full), and a server that is lost half way.

    python experiments/benchmarks/serving_trouble.py profile.csv -o experiments/results/serving_trouble.csv

profile.csv: made by `kernel-dvfs serving profile --core-mhz 345,1000,1300,1600,1980`. Six replays; the plans are those
that serving_packing.py found for hours of this kind. Every figure is simulated (Llama2-70B on H100).
"""

import argparse
import csv
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow"))

from kernel_dvfs_serving.machine import machine
from kernel_dvfs_serving.packing import Packing, Static
from kernel_dvfs_serving.profile import read_profile
from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.system import Settings
from kernel_dvfs_serving.trace import hours
from kernel_dvfs_serving.tuned import replayed

PLANS = Static(4, 2, "1600"), Packing(2, 2, "1300", boost="1600", rest="345", answer_tokens=28.0)
DELAY = {"route_s": 0.02}
TROUBLES = {
    "delay 20 ms, caches grow": (DELAY, {"preempts": True}),
    "and the first server lost after half an hour": (DELAY | {"fails_s": 1800.0}, {"preempts": True}),
    "P99 of gaps promised, no trouble": ({}, {"gaps": "p99"}),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile")
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    profile = read_profile(options.profile)
    replayer = Replayer(machine(profile, profile.gpu, profile.model), profile)
    trace = hours(2.0, 2, 3600, "coding", 0.3, 4)
    rows = []
    for trouble, (of_plan, of_settings) in TROUBLES.items():
        for plan in PLANS:
            found = replayed(replayer, trace, replace(plan, **of_plan), Settings(**of_settings))
            rows.append(
                {
                    "trouble": trouble,
                    "system": found["system"],
                    **{key: found.get(key, "") for key in ("servers", "tp", "clock", "boost")},
                    "j_per_token_in_time": f"{found['j_per_token_in_time']:.4f}",
                    "kept_percent": f"{found['kept_percent']:.2f}",
                    "pre_empted": found["events"].get("pre-empted", 0),
                    "ttft_p99_s": f"{found['ttft_p99_s']:.2f}",
                    "gap_p99_s": f"{found['tbt_p99_s']:.3f}",
                }
            )
            print(rows[-1], flush=True)
    with open(options.output, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
