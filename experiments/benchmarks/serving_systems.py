"""Every serving system beside the tuned static plan: energy of a token served in time, and promises kept on both halves
of a trace and where all steps take 1.2 times as long.

    python experiments/benchmarks/serving_systems.py profile.csv conv.csv synthetic-bursty-coding.csv \\
        synthetic-idle-night.csv synthetic_hour.csv -o experiments/results/serving_systems.csv

profile.csv: made by `kernel-dvfs serving profile --core-mhz 345,1000,1300,1600,1980`. The fixed plans are the cheapest
that keep 99 % on each half, the second begun afresh, also with slower steps (kernel_dvfs_serving/tuned.py). J a token
is that of both halves; the ratio is of the plan's, and is empty where either breaks the promise on a half. Every
figure is simulated.

The traces, besides the Azure one (conv.csv):

    kernel-dvfs serving trace --hours 1 --rate 2 --swing 0.3 --service coding --bursts 4 -o synthetic-bursty-coding.csv
    kernel-dvfs serving trace --hours 8 --rate 0.05 --swing 0.5 -o synthetic-idle-night.csv

synthetic_hour.csv is the shipped one.
"""

import argparse
import csv
import sys
import time
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow"))

from kernel_dvfs_serving.experiments import every_system
from kernel_dvfs_serving.machine import machine
from kernel_dvfs_serving.profile import read_profile
from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.report.share import plan_in_words
from kernel_dvfs_serving.system import TUNED, ClusterSettings
from kernel_dvfs_serving.trace import read_trace


def row(name: str, found: dict, plan: dict, promise_percent: float) -> dict:
    """A system's line of the table."""
    own, theirs = found["tried"], plan["tried"]
    kept = list(own["kept_percent"].values())
    told = min(*kept[:2], *list(theirs["kept_percent"].values())[:2]) >= promise_percent
    spent = own["j_per_token_in_time"]  # None: no token came in time
    return {
        "date": date.today().isoformat(),
        "trace": name,
        "system": found["system"],
        "j_per_token_in_time": "" if spent is None else f"{spent:.4f}",
        **{f"kept_percent_{key}": f"{kept[place]:.2f}" for place, key in enumerate(COLUMNS)},
        "of_tuned_plan": f"{spent / theirs['j_per_token_in_time']:.3f}" if told else "",
        "rejected": found["rejected"],
        "server_hours": f"{found['server_hours']:.2f}",
        "ttft_p99_s": f"{found['ttft_p99_s']:.2f}",
        "plan": plan_in_words(found),
    }


# of the trials, in their order
COLUMNS = ("first_half", "second_half", "first_half_slower", "second_half_slower")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile")
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--servers", type=int, default=12)
    parser.add_argument("--cores", type=int, default=1, choices=(1, 2))
    parser.add_argument("-o", "--output", metavar="OUT.csv")
    options = parser.parse_args()
    profile, own = read_profile(options.profile), ClusterSettings(servers=options.servers)
    replayer = Replayer(machine(profile, profile.gpu, profile.model), profile)
    rows = []
    for path in options.traces:
        name, begun = Path(path).stem, time.process_time()
        runs = {each["system"]: each for each in every_system(replayer, read_trace(path), own, cores=options.cores)}
        print(f"{name}: {time.process_time() - begun:.0f} s of CPU")
        for found in runs.values():
            rows.append(row(name, found, runs[TUNED], own.promise_percent))
            print(*rows[-1].values(), sep=", ", flush=True)
    if options.output:
        with open(options.output, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
