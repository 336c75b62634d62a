"""What trouble does to given plans on traces that they were not tuned on: a router's delay, KV caches that grow with
the answers (and pre-empt where they are full), and a server that is lost half way, with and without a spare.

    python experiments/benchmarks/serving_trouble.py profile.csv conv.csv -o experiments/results/serving_trouble.csv

profile.csv: made by `kernel-dvfs serving profile --core-mhz 345,1000,1300,1600,1980`; conv.csv: the Azure trace, of
which the second half is replayed. The plans are those that serving_packing.py found on other traces of these kinds. One
server that is lost without a spare serves nobody for 420 s (serving_packing.txt), which is left out here. Every figure
is simulated (Llama2-70B on H100).
"""

import argparse
import csv
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow"))

from serving_packing import day, halves

from kernel_dvfs_serving.machine import machine
from kernel_dvfs_serving.packing import Packing, Static
from kernel_dvfs_serving.profile import read_profile
from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.system import Settings
from kernel_dvfs_serving.trace import hours, read_trace
from kernel_dvfs_serving.tuned import replayed

# the tuned static plan and packing of each kind of trace
PLANS = {
    "coding-like hour": (Static(4, 4, "1600"), Packing(2, 2, "1000", boost="1300", rest="345", answer_tokens=28.0)),
    "conversation-like hour": (
        Static(1, 4, "1600"),
        Packing(1, 8, "345", boost="1000", rest="345", answer_tokens=211.0),
    ),
    "day": (Static(2, 8, "1300"), Packing(1, 4, "345", boost="1000", rest="345", answer_tokens=211.0)),
    "Azure hour, second half": (
        Static(2, 8, "1000"),
        Packing(1, 8, "1000", boost="1300", rest="345", answer_tokens=211.0),
    ),
}
LOST = "delay 20 ms, caches grow, a server lost half way"
ALONE = {  # on the first trace only
    "delay 20 ms, caches grow": ({"route_s": 0.02}, {"preempts": True}),
    "P99 of gaps promised, no trouble": ({}, {"gaps": "p99"}),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile")
    parser.add_argument("conv")
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    profile = read_profile(options.profile)
    replayer = Replayer(machine(profile, profile.gpu, profile.model), profile)
    traces = dict(
        zip(
            PLANS,
            (
                hours(2.0, 2, 3600, "coding", 0.3, 4),
                hours(5.5, 2, 3600, "conversation", 0.3),
                day(2),
                halves(read_trace(options.conv))[1],
            ),
        )
    )
    asked = [(next(iter(PLANS)), trouble, 0, *changed) for trouble, changed in ALONE.items()]
    for name, trace in traces.items():
        lost = {"route_s": 0.02, "fails_s": trace.span_s / 2}
        asked += [(name, LOST, spare, lost, {"preempts": True}) for spare in (0, 1)]
    rows = []
    for name, trouble, spare, of_plan, of_settings in asked:
        for plan in PLANS[name]:
            if plan.servers + spare == 1:
                continue
            more = replace(plan, servers=plan.servers + spare, **of_plan)
            found = replayed(replayer, traces[name], more, Settings(**of_settings))
            rows.append(
                {
                    "date": date.today().isoformat(),
                    "trace": name,
                    "trouble": trouble,
                    "system": found["system"],
                    "spare": spare,
                    **{key: found.get(key, "") for key in ("servers", "tp", "clock", "boost")},
                    "j_per_token_in_time": f"{found['j_per_token_in_time']:.4f}",
                    "kept_percent": f"{found['kept_percent']:.2f}",
                    "pre_empted": found["events"].get("pre-empted", 0),
                    "ttft_p99_s": f"{found['ttft_p99_s']:.2f}",
                    "gap_p99_s": f"{found['tbt_p99_s']:.3f}",
                }
            )
            print(*rows[-1].values(), sep=", ", flush=True)
    with open(options.output, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
