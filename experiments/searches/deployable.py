"""What can be set today on every shipped board: free changes, one pair, a pair a pass, launch by launch (simulated).

    python experiments/searches/deployable.py [--boards rtx_3080_ti ...] [-o FILE]

For each board a study by clock of the shipped configuration, whose strict choice counts changes of clocks as free; then
each way that can be set today where a change takes what the board's spec says (assumed) and where its median is 1 or
50 ms, all walked and measured again. On the default board also without stalls, and with ten times as long ones. Writes
experiments/results/deployable.csv, and prints the table of docs/deploy.md. About ten CPU seconds a board and median.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

import pandas as pd

from kernel_dvfs import api, shipped
from kernel_dvfs.cli.main import main as command
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.layout import FREE, LAUNCH, PASS, RUN
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import ALONE, plan
from kernel_dvfs.report.words import WAYS as SET_TODAY
from kernel_dvfs.report.words import signed
from kernel_dvfs.student import interval
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_json, write_text
from kernel_dvfs_deploy.sequence.costs import ASSUMED_STALL_S
from kernel_dvfs_deploy.tables import deployed

RESULT = Path(__file__).resolve().parents[1] / "results/deployable.csv"
MEDIANS_S, STALLS_S = (0.001, 0.05), (0.0, 0.001)
_STALL_MS = 1e3 * ASSUMED_STALL_S
WAYS = {FREE: "changes free", **SET_TODAY}


def board(name: str, is_default: bool) -> pd.DataFrame:
    """The rows of a board."""
    config = load(str(shipped.CONFIG)) | ALONE | {"gpu": name}
    with tempfile.TemporaryDirectory() as folder:
        study = plan(config, folder)
        assert study.setup is not None and study.switching is not None
        own_s = study.switching["core"]["median_s"]
        sweep = api.Sweep(Path(folder, "sweep.parquet"), Path(study.setup.write()), len(study.kernels), study.pairs, 1)
        strict = api.by_clock(sweep, study.limits_percent, say=lambda _: None)[0]
        again = api.validate(sweep, strict, study.repeats)
        write_json(f"{folder}/strict.json", strict)
        words = ["study", "deployable", f"{folder}/{api.BY_CLOCK}", f"--gpu={sweep.setup}", "-o", folder]
        words += [f"--over={config['by_clock']['over_percent']}", f"--repeats={study.repeats}"]
        words += [f"--reserve-of={folder}/strict.json"]
        listed = []
        stalls = ["--stalls", *map(str, STALLS_S)] if is_default else []
        for asked in (["--latencies", str(own_s), *stalls], ["--latencies", *map(str, MEDIANS_S)]):
            if command([*words, *asked]):
                raise InputError(f"{name}: nothing was chosen; see what the command says above")
            rows = json.loads(Path(folder, "deployable.json").read_text("utf-8"))["rows"]
            # what no median changes is told once
            listed += [row for row in rows if not listed or row["way"] not in (FREE, RUN)]
    sessions = [str(number) for number in range(study.repeats)]
    free = interval(again.time_percent, sessions), interval(again.energy_percent, sessions)
    found = deployed(listed, free).drop(columns=["is_default", "costs"])
    found.insert(0, "gpu", study.title)
    found.insert(1, "own_latency", found.latency_ms == 1e3 * own_s)
    return found


def in_markdown(frame: pd.DataFrame) -> str:
    """A row a board and median, at the assumed stalls: energy and time, claimed and measured again. A board at which
    the medians make no difference has one row."""
    lines = ["| board | median, ms: core, memory | " + " | ".join(WAYS.values()) + " |", "|---|--:|--:|--:|--:|--:|"]
    for gpu, rows in frame.groupby("gpu", sort=False):
        once = {way: _told(rows[rows.way == way].iloc[0]) for way in (FREE, RUN)}
        own = rows[rows.way.isin([PASS, LAUNCH]) & (rows.core_stall_ms == _STALL_MS)]
        own = own.sort_values(["own_latency", "latency_ms"], ascending=[False, True])
        known = set()
        for (core_ms, mem_ms), timed in own.groupby(["latency_ms", "mem_latency_ms"], sort=False):
            told = [(once | {row.way: _told(row) for row in timed.itertuples()})[way] for way in WAYS]
            if tuple(told) not in known:
                is_own = timed.own_latency.any()
                named = f"{core_ms:g}, {mem_ms:g}" + (" (its own)" if is_own else "")
                lines.append(f"| {gpu if is_own else ''} | {named} | " + " | ".join(told) + " |")
            known.add(tuple(told))
    return "\n".join(lines)


def _told(row: Any) -> str:
    if row.clocks == "auto":
        return "nothing"
    energy, time = (
        [signed(getattr(row, f"{which}_{quantity}_change_percent")) for which in ("claimed", "fresh")]
        for quantity in ("energy", "time")
    )
    return f"{energy[0]} / **{energy[1]} %** at {' / '.join(time)} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boards", nargs="+", default=specs.names(), metavar="NAME", help="default: all shipped")
    parser.add_argument("-o", "--output", default=str(RESULT), metavar="FILE")
    options = parser.parse_args()
    default = load(str(shipped.CONFIG))["gpu"]
    frames = []
    for name in options.boards:
        frames.append(board(name, name == default))
        print(f"{name}: done", file=sys.stderr, flush=True)
    frame = pd.concat(frames, ignore_index=True)
    write_text(options.output, frame.to_csv(index=False, lineterminator="\n"))
    print(in_markdown(frame))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
