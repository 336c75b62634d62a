"""Every managed serving system on given traces: energy of a token served in time, promises kept, requests rejected.

    python experiments/benchmarks/serving_systems.py profile.csv conv.csv synthetic-idle-night.csv -o systems.csv
    python experiments/benchmarks/serving_systems.py profile.csv conv.csv --before ../old --before-profile old.csv

profile.csv: made by `kernel-dvfs serving profile`. --before: another checkout of this project, on the same traces and
in this same call; then each line also has its figures, and the ratio of a token's energy, after / before.
Says which systems spend more than another with a part of their knobs, checks that requests and energy are conserved,
and prints CPU seconds. Every figure is simulated.

The traces of docs/serving.md, besides the Azure one (conv.csv):

    kernel-dvfs serving trace --hours 1 --rate 2 --swing 0.3 --service coding --bursts 4 -o synthetic-bursty-coding.csv
    kernel-dvfs serving trace --hours 8 --rate 0.05 --swing 0.5 -o synthetic-idle-night.csv
    kernel-dvfs serving trace conv.csv --times 6 -o conv-x6.csv
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

OWN = Path(__file__).resolve().parents[2]


def runs(profile: str, traces: list[str], servers: int) -> list[dict]:
    """One row a trace and system, of whichever version of the library is on the path.

    Only what every version has is read: a finished cluster's arrays.
    """
    import numpy as np

    from kernel_dvfs_serving import system
    from kernel_dvfs_serving.profile import read_profile
    from kernel_dvfs_serving.replay import Replayer
    from kernel_dvfs_serving.requests import CLASSES, TBT_SLO_S, ttft_slo_s
    from kernel_dvfs_serving.trace import read_trace

    read = read_profile(profile)
    try:
        from kernel_dvfs_serving.machine import machine

        replayer = Replayer(machine(read, read.gpu, read.model), read)
    except ImportError:
        from kernel_dvfs_serving.machine import Machine

        replayer = Replayer(Machine(read.gpu, read.model), read)
    rows = []
    for path in traces:
        trace, own = read_trace(path), system.Settings(servers=servers)
        asked = [(name, name, own) for name in system.SYSTEMS]
        for name, run_name, settings in asked:
            begun = time.process_time()
            cluster = replayer.run(trace, run_name, settings)
            cpu_s = time.process_time() - begun
            promised_s = np.array([ttft_slo_s(each) for each in CLASSES])[cluster.kinds]
            if hasattr(cluster, "first_kept"):
                kept = cluster.first_kept & cluster.gaps_kept
            else:  # a checkout of before
                kept = cluster.finished & (cluster.ttft_s <= promised_s) & ~(cluster.mean_tbt_s > TBT_SLO_S)
            late, rejected = int((cluster.finished & ~kept).sum()), int(cluster.rejected.sum())
            if int(kept.sum()) + late + rejected != len(kept):
                raise SystemExit(f"{path}, {name}: requests are not conserved")
            energy_j = sum(cluster.accounts.energy_j.values())
            by_server = [
                sum(each.account.energy_j.values()) for each in cluster.fleet.servers if hasattr(each, "account")
            ]
            if by_server and abs(sum(by_server) / energy_j - 1) > 1e-9:
                raise SystemExit(f"{path}, {name}: the servers' energies do not add up to the total")
            tokens = int((trace.input_tokens.astype(int) + trace.output_tokens)[kept].sum())
            rows.append(
                {
                    "trace": Path(path).stem,
                    "system": name,
                    "servers": settings.servers,
                    "j_per_token_in_time": energy_j / tokens,
                    "kept_percent": 100 * float(kept.mean()),
                    "late": late,
                    "rejected": rejected,
                    "server_hours": cluster.fleet.server_s / 3600,
                    "cpu_s": cpu_s,
                }
            )
    return rows


def losses(rows: list[dict]) -> list[str]:
    """Systems that spend more, by over 1 %, than another with a part of their knobs."""
    from kernel_dvfs_serving.system import SUBSETS

    spent = {row["system"]: row["j_per_token_in_time"] for row in rows}
    return [
        f"{SUBSETS[more]} spends more than {SUBSETS[less]}"
        for less in SUBSETS
        for more in SUBSETS
        if set(less) < set(more) and spent[SUBSETS[more]] > 1.01 * spent[SUBSETS[less]]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile")
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--servers", type=int, default=12)
    parser.add_argument("--before", metavar="CHECKOUT")
    parser.add_argument("--before-profile", metavar="PROFILE.csv", help="made by it, where its instance is another")
    parser.add_argument("-o", "--output", metavar="OUT.csv")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = runs(options.profile, options.traces, options.servers)
    if options.json:
        print(json.dumps(rows))
        return 0
    if options.before:
        profile = options.before_profile or options.profile
        command = [sys.executable, __file__, profile, *options.traces, "--servers", str(options.servers)]
        path = {"PYTHONPATH": str(Path(options.before) / "workflow")}
        said = subprocess.run(
            [*command, "--json"], env=os.environ | path, stdout=subprocess.PIPE, check=True, text=True
        )
        for row, old in zip(rows, json.loads(said.stdout), strict=True):
            row |= {f"before_{name}": value for name, value in old.items() if name not in ("trace", "system")}
            row["energy_ratio"] = row["j_per_token_in_time"] / old["j_per_token_in_time"]
    for row in rows:
        text = "{trace:24} {system:26} {j_per_token_in_time:9.4f} J/token, kept {kept_percent:6.2f} %, late {late:5d}, "
        text += "rejected {rejected:4d}, {server_hours:6.2f} server-hours, {cpu_s:.2f} s CPU"
        if options.before:
            text += " | before {before_j_per_token_in_time:9.4f}, {before_kept_percent:6.2f} %, {before_rejected:4d}"
            text += " | after / before {energy_ratio:.3f}"
        print(text.format(**row))
    for trace in dict.fromkeys(row["trace"] for row in rows):
        found = losses([row for row in rows if row["trace"] == trace])
        print(f"{trace}: {'; '.join(found) or 'no system spends more than another with a part of its knobs'}")
    if options.output:
        with open(options.output, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            cells = ({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
            writer.writerows(cells)
    return 0


if __name__ == "__main__":
    if "PYTHONPATH" not in os.environ or "--json" not in sys.argv:
        sys.path.insert(0, str(OWN / "workflow"))
    sys.exit(main())
