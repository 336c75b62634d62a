"""The choice over a whole iteration where changes of clocks take time: how fast, how much memory, how far from proven.

    PYTHONPATH=workflow python experiments/benchmarks/switching.py scale [--against OTHER/workflow]
    PYTHONPATH=workflow python experiments/benchmarks/switching.py cases

All on 897 launches of GPT-3-xl on the simulated RTX 3080 Ti, one sweep with the shipped seed, no time lost.

scale: `ahead` at 10 ms with jitter, at 57 pairs (the shipped grid), 120 and 640 (evenly from a grid of 15 MHz), each in
a process of its own. Target: 640 pairs within 60 CPU seconds and 500 MB. --against: the same in another checkout, as
before a change, up to 120 pairs; more would not fit into memory there.
cases: behaviours, latencies, jitters and stalls at 57 pairs. Targets: unproven at most 0.02 points of energy, 4 CPU s.
"""

import argparse
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np

from kernel_dvfs.measurement.setup import read
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import plan
from kernel_dvfs.profile import aggregate
from kernel_dvfs_deploy.sequence.changes import BEHAVIOURS, Timing
from kernel_dvfs_deploy.sequence.launches import Sequence, read_sequence
from kernel_dvfs_deploy.sequence.programme import choose_changes

SCALE_CPU_S, SCALE_MB = 60.0, 500.0
CASE_POINTS, CASE_CPU_S = 0.02, 4.0
SIZES, COMPARED = (57, 120, 640), (57, 120)
STALLS_S = (0.0, 1e-4, 1e-3)


def iteration(pairs: int | None = None) -> Sequence:
    """The iteration of the shipped configuration; with another number of pairs, those evenly from a grid of 15 MHz."""
    config = load("config.yaml") | {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": []}
    if pairs is not None:
        config["grid"] = {"core_mhz": {"step": 15}, "mem_mhz": "all", "auto": True}
    with tempfile.TemporaryDirectory() as folder:
        study = plan(config, folder)
        listed = list(study.pairs)
        if pairs is not None:
            # the first is the baseline
            places = np.linspace(1, len(listed) - 1, pairs - 1).round().astype(int)
            listed = [listed[0], *(listed[place] for place in places)]
        aggregate.from_bench(read(study.setup.write()), listed, 10, f"{folder}/profile.parquet", ("kernel",))
        return read_sequence(f"{folder}/profile.parquet").sequence


# --- scale ------------------------------------------------------------------------------------------------------------


def scale(against: str | None) -> int:
    print("pairs jitter    energy    unproven  changes    CPU s       MB")
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for pairs in SIZES:
            path = Path(folder, f"{pairs}.pickle")
            path.write_bytes(pickle.dumps(_plain(iteration(None if pairs == SIZES[0] else pairs))))
            for jitter in (0.1, 0.3):
                found = {}
                checkouts = {"before": against, "now": None} if against and pairs in COMPARED else {"now": None}
                for name, library in checkouts.items():
                    own = found[name] = _elsewhere(path, jitter, library)
                    print(
                        f"{pairs:5} {100 * jitter:5g}% {own['energy_change_percent']:8.3f} % {own['points']:8.4f} pt"
                        f" {own['changes']:8} {own['cpu_s']:8.1f} {own['mb']:8.0f}  {name}",
                        flush=True,
                    )
                if "before" in found:
                    ratios = (found["before"][key] / found["now"][key] for key in ("cpu_s", "mb"))
                    print("       before / now: {:.1f} times the CPU time, {:.1f} times the memory".format(*ratios))
                if pairs == SIZES[-1] and (found["now"]["cpu_s"] > SCALE_CPU_S or found["now"]["mb"] > SCALE_MB):
                    missed += 1
    print(f"target, {SIZES[-1]} pairs with jitter: {SCALE_CPU_S:g} CPU s, {SCALE_MB:g} MB: missed {missed} of 2 times")
    return 1 if missed else 0


def _plain(sequence: Sequence) -> dict:
    """What every version of the library can make a sequence of."""
    names = ("names", "kernel", "time_s", "energy_j", "pairs", "baseline", "stall_w")
    return {name: getattr(sequence, name) for name in names}


def _elsewhere(path: Path, jitter: float, library: str | None) -> dict:
    """What `one` says in a process of its own. library: the folder `workflow` of another checkout."""
    environment = dict(os.environ) | ({"PYTHONPATH": library} if library else {})
    words = [sys.executable, __file__, "one", str(path), str(jitter)]
    return json.loads(subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout)


def one(path: str, jitter: float) -> int:
    """One choice, its CPU time and its peak memory, as JSON."""
    sequence = Sequence(**pickle.loads(Path(path).read_bytes()))
    began = time.process_time()
    found = choose_changes(sequence, Timing("ahead", 0.01, jitter))
    cpu_s, base_j = time.process_time() - began, sequence.baseline_energy_j
    about = {"energy_change_percent": 100 * (found.energy_j / base_j - 1), "points": 100 * found.gap_j / base_j}
    mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)
    print(json.dumps(about | {"changes": len(found.changes), "cpu_s": cpu_s, "mb": mb}))
    return 0


# --- cases ------------------------------------------------------------------------------------------------------------


def cases() -> int:
    sequence, missed, count = iteration(), {"gap": 0, "time": 0}, 0
    print(" behaviour jitter   latency    stall     energy    unproven changes  CPU s")
    for timing in _timings():
        began = time.process_time()
        found = choose_changes(sequence, timing)
        cpu_s, count = time.process_time() - began, count + 1
        points = 100 * found.gap_j / sequence.baseline_energy_j
        over = [name for name, is_over in (("gap", points > CASE_POINTS), ("time", cpu_s > CASE_CPU_S)) if is_over]
        for name in over:
            missed[name] += 1
        print(
            f"{timing.behaviour:>10} {100 * timing.jitter:5g}% {1e3 * timing.latency_s:6g} ms"
            f" {1e3 * timing.core_stall_s:5g} ms {100 * (found.energy_j / sequence.baseline_energy_j - 1):8.3f} %"
            f" {points:8.4f} pt {len(found.changes):7} {cpu_s:6.2f}" + (f"  MISSED: {', '.join(over)}" if over else ""),
            flush=True,
        )
    print(
        f"targets: {CASE_POINTS} points, {CASE_CPU_S:g} CPU s: missed {missed['gap']} and {missed['time']} of {count}"
    )
    return 1 if any(missed.values()) else 0


def _timings() -> list[Timing]:
    """Every behaviour, latency and jitter at the assumed stall; `ahead` without jitter at the other stalls too."""
    # here, since it brings this checkout's library, and `--against` runs another one
    from experiments.searches.switching import JITTERS, LATENCIES_S

    found = []
    for behaviour in BEHAVIOURS:
        for jitter in JITTERS:
            for stall_s in STALLS_S:
                if stall_s != STALLS_S[1] and (behaviour != "ahead" or jitter):
                    continue
                found += [Timing(behaviour, latency_s, jitter, stall_s, stall_s) for latency_s in LATENCIES_S]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("scale").add_argument("--against", metavar="OTHER/workflow")
    commands.add_parser("cases")
    alone = commands.add_parser("one")
    alone.add_argument("path")
    alone.add_argument("jitter", type=float)
    options = parser.parse_args()
    if options.what == "one":
        return one(options.path, options.jitter)
    if options.what == "scale":
        return scale(options.against)
    return cases()


if __name__ == "__main__":
    sys.exit(main())
