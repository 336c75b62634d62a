"""Does `kernel-dvfs latency` find the latencies that there are? On a stand-in for NVML whose latencies are known.

    python experiments/benchmarks/change_latency.py [--repeats 10] [-o DIR]

Each case draws every latency from a distribution of its own, with a stall and a ramp after it; the table has what was
drawn beside what was found, and the largest error of a single change. Goal: 5 % or one sampling step (20 us).
Everything is simulated: it says how well the analysis works, nothing of a GPU.
"""

import argparse
import csv
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "fakenvml"))

import fake
from laboratory import Lab

from kernel_dvfs.measurement.latency_file import STATISTICS, statistics

STEP_S = 20e-6
CASES = {
    "short, even": {"core_lag_ms": 2, "core_lag_spread": 0.1, "mem_lag_ms": 5, "mem_lag_spread": 0.1},
    "wide": {"core_lag_ms": 15, "core_lag_spread": 0.9, "mem_lag_ms": 60, "mem_lag_spread": 0.6},
    "long tail, stall, ramp": {
        **{"core_lag_ms": 20, "core_lag_spread": 0.5, "core_lag_tail": 0.15, "core_stall_ms": 0.3, "core_ramp_ms": 4},
        **{"mem_lag_ms": 50, "mem_lag_spread": 0.3, "mem_lag_tail": 0.1, "mem_stall_ms": 1.5, "set_ms": 2},
    },
}


def of_case(name: str, knobs: dict, repeats: int, library: Path, folder: Path) -> list[dict]:
    """Rows of a case: a domain and quantity each."""
    boards = fake.Boards(library, folder / "state", "h200", time="virtual", **knobs)
    lab = Lab(boards, folder / "work", {})
    done = lab.command("latency", "--repeats", repeats, "-o", "latency.json")
    if done.returncode:
        raise SystemExit(done.stderr)
    trials = json.loads((lab.folder / "latency.json").read_text())["trials"]
    pairs, rows = list(zip(trials, fake.drawn_for(boards, trials))), []
    for domain in ("core", "mem"):
        for quantity in ("first_effect_s", "settled_s", "stall_s"):
            own = [(trial, truth) for trial, truth in pairs if trial["domain"] == domain]
            true = [_true(truth, quantity) for _, truth in own]
            found = [trial[quantity] for trial, _ in own]
            worst = max(abs(a - b) / max(STEP_S, 0.05 * b) for a, b in zip(found, true))
            row = {"case": name, "domain": domain, "quantity": quantity.removesuffix("_s"), "changes": len(own)}
            for word, values in (("true", true), ("found", found)):
                known = statistics(values)
                row |= {f"{word}_{each}_ms": round(1e3 * known[each], 4) for each in STATISTICS[2:]}
            rows.append(row | {"worst_error_of_allowed": round(worst, 2)})
    return rows


def _true(truth: dict, quantity: str) -> float:
    if quantity == "first_effect_s":
        return truth["lag_s"]
    return truth["stall_s"] if quantity == "stall_s" else truth["lag_s"] + truth["stall_s"] + truth["ramp_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10, help="of each of eight changes")
    parser.add_argument("-o", "--output", default="experiments/results", help="folder of change_latency.csv")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as made:
        library = fake.build(Path(made))
        for number, (name, knobs) in enumerate(CASES.items()):
            folder = Path(made, str(number))
            folder.mkdir()
            rows += of_case(name, knobs, options.repeats, library, folder)
    with open(Path(options.output, "change_latency.csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(*row.values(), sep="\t")
    worst = max(row["worst_error_of_allowed"] for row in rows)
    print(f"largest error: {worst:.2f} of what is allowed (5 % or one step): {'kept' if worst <= 1 else 'MISSED'}")


if __name__ == "__main__":
    main()
