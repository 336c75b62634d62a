"""Every serving system beside the tuned static plan: energy of a token served in time, and promises kept.

    python experiments/benchmarks/serving_systems.py profile.csv conv.csv synthetic-bursty-coding.csv \\
        synthetic-idle-night.csv --halves conv.csv synthetic_hour.csv -o experiments/results/serving_systems.csv

profile.csv: made by `kernel-dvfs serving profile --core-mhz 345,1000,1300,1600,1980`. The plan, packing and the
autoscaler are tuned on each trace itself, of those of --halves on the first half, and all systems are replayed on the
second. The ratio is of the plan's energy, and is empty where either of the two breaks the promise. Says which systems
spend more than another with a part of their knobs. Every figure is simulated.

The traces, besides the Azure one (conv.csv):

    kernel-dvfs serving trace --hours 1 --rate 2 --swing 0.3 --service coding --bursts 4 -o synthetic-bursty-coding.csv
    kernel-dvfs serving trace --hours 8 --rate 0.05 --swing 0.5 -o synthetic-idle-night.csv

synthetic_hour.csv is the shipped one.
"""

import argparse
import csv
import sys
from datetime import date
from math import inf
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow"))

from serving_packing import halves

from kernel_dvfs_serving.experiments import every_system
from kernel_dvfs_serving.machine import machine
from kernel_dvfs_serving.profile import read_profile
from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.report.share import plan_in_words
from kernel_dvfs_serving.system import SUBSETS, TUNED, Settings
from kernel_dvfs_serving.trace import read_trace


def row(name: str, found: dict, plan: dict, promise_percent: float) -> dict:
    """A system's line of the table."""
    told = all(each["kept_percent"] >= promise_percent for each in (found, plan))
    spent = found["j_per_token_in_time"]  # None: no token came in time
    return {
        "date": date.today().isoformat(),
        "trace": name,
        "system": found["system"],
        "j_per_token_in_time": "" if spent is None else f"{spent:.4f}",
        "kept_percent": f"{found['kept_percent']:.2f}",
        "of_tuned_plan": f"{spent / plan['j_per_token_in_time']:.3f}" if told else "",
        "late": found["late"],
        "rejected": found["rejected"],
        "server_hours": f"{found['server_hours']:.2f}",
        "ttft_p99_s": f"{found['ttft_p99_s']:.2f}",
        "plan": plan_in_words(found),
    }


def losses(runs: dict[str, dict]) -> list[str]:
    """Systems that spend more, by over 1 %, than another with a part of their knobs."""
    spent = {system: found["j_per_token_in_time"] or inf for system, found in runs.items()}
    return [
        f"{SUBSETS[more]} spends more than {SUBSETS[less]}"
        for less in SUBSETS
        for more in SUBSETS
        if set(less) < set(more) and spent[SUBSETS[more]] > 1.01 * spent[SUBSETS[less]]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile")
    parser.add_argument("traces", nargs="*")
    parser.add_argument("--halves", nargs="*", default=[], help="traces that are tuned on one half")
    parser.add_argument("--servers", type=int, default=12)
    parser.add_argument("-o", "--output", metavar="OUT.csv")
    options = parser.parse_args()
    profile, own = read_profile(options.profile), Settings(servers=options.servers)
    replayer = Replayer(machine(profile, profile.gpu, profile.model), profile)
    rows = []
    for path, halved in [*((each, False) for each in options.traces), *((each, True) for each in options.halves)]:
        name, trace, tuned_on = Path(path).stem, read_trace(path), None
        if halved:
            name, (tuned_on, trace) = f"{name}, second half", halves(trace)
        runs = {each["system"]: each for each in every_system(replayer, trace, own, tuned_on=tuned_on, cores=1)}
        for found in runs.values():
            rows.append(row(name, found, runs[TUNED], own.promise_percent))
            print(*rows[-1].values(), sep=", ", flush=True)
        print(f"{name}: {'; '.join(losses(runs)) or 'no system spends more than another with a part of its knobs'}")
    if options.output:
        with open(options.output, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
