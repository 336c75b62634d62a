"""Are the joules in a training's log those of the boards? Trainings on two GPUs, beside the boards' energy counters.

    python experiments/benchmarks/trainers/run.py OUT

torchtitan's own loop (FSDP) and transformers' Trainer (data parallel) train a Llama of 0.4 G parameters under torchrun,
with our hooks. Meanwhile the counters of the two boards are read each 10 ms, by wall time, as the logs' rows have it.
Each row is compared with what the counters say since the row before, the first with what they say since the hook began.
Needs torch, transformers, torchtitan 0.2 and idle GPUs. Run it behind an NVML that refuses to set anything. Writes
trainers.txt, the counters, and each training's output and rows to OUT.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pynvml

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]  # time_s, step, and from the second on energy_j_per_step, power_w, energy_verdict


class Counters(threading.Thread):
    """The energy counters of the two boards that train, NVML's first ones, mJ, each 10 ms, until `is_over` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = threading.Event()
        self.read: list[tuple[float, ...]] = []

    def run(self) -> None:
        pynvml.nvmlInit()
        boards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
        while not self.is_over.wait(0.01):
            energy_mj = [pynvml.nvmlDeviceGetTotalEnergyConsumption(board) for board in boards]
            self.read.append((time.time(), *energy_mj))

    def counted_j(self, times_s: list[float]) -> np.ndarray:
        """Return the sum over the boards at these times, by straight lines between a counter's moves."""
        read = np.array(self.read)
        total_j = np.zeros(len(times_s))
        for energy_mj in read.T[1:]:
            moves = np.flatnonzero(np.diff(energy_mj)) + 1
            total_j += np.interp(times_s, read[moves, 0], energy_mj[moves] / 1000)
        return total_j


def train(out: Path, name: str, *words: object) -> None:
    """Run a training on two GPUs to its end; what it says goes to a file."""
    ranks = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    ranks += ["--rdzv-endpoint", "localhost:0", *map(str, words)]
    paths = [str(HERE), str(HERE.parents[2] / "workflow"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    with open(out / f"{name}.log", "w") as log:
        subprocess.run([sys.executable, *ranks], cwd=out, env=environment, stdout=log, stderr=log, check=True)


def torchtitan(out: Path) -> list[Row]:
    """Train by torchtitan; returns the rows of its TensorBoard. The watch begins where step 1 is logged."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sys.path.insert(0, str(HERE.parents[2] / "workflow"))
    from torchtitan_llama import save_tokenizer

    save_tokenizer(out / "assets")
    options = {
        **{"experimental.custom_import": "torchtitan_llama", "model.name": "llama3_energy", "model.flavor": "small"},
        **{"model.hf_assets_path": out / "assets", "training.dataset": "made", "training.local_batch_size": 8},
        **{"training.seq_len": 2048, "training.steps": 250, "activation_checkpoint.mode": "none"},
        **{"metrics.log_freq": 25, "job.dump_folder": out / "titan"},
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    train(out, "torchtitan", "-m", "torchtitan.train", "--metrics.enable_tensorboard", *words)
    file = next((out / "titan").rglob("events.out.tfevents*"))
    events = EventAccumulator(str(file), size_guidance={"scalars": 0})
    events.Reload()
    rows: dict[int, Row] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            row = rows.setdefault(event.step, {"step": event.step, "time_s": event.wall_time})
            row["time_s"] = min(row["time_s"], event.wall_time)
            row[tag.replace("energy/j", "energy_j").removeprefix("energy/")] = event.value
    for row in rows.values():
        row["energy_verdict"] = "ok" if row.get("believed") else "not believed"
    return [rows[step] for step in sorted(rows)]


def trainer(out: Path) -> list[Row]:
    """Train by transformers' Trainer; returns the rows of its log."""
    train(out, "trainer", HERE / "trainer_llama.py", out / "trainer.jsonl")
    return [json.loads(line) for line in (out / "trainer.jsonl").read_text().splitlines()]


def compared(name: str, rows: list[Row], counters: Counters) -> list[str]:
    """Return a line for each row with joules, and one for all but the first of them."""
    rows = [rows[0], *(row for row in rows if "energy_j_per_step" in row)]
    counted_j = np.diff(counters.counted_j([row["time_s"] for row in rows]))
    steps = np.diff([row["step"] for row in rows])
    told_j = steps * np.array([row["energy_j_per_step"] for row in rows[1:]])
    found = [
        f"{name:<10} {row['step']:>4} {row['energy_j_per_step']:>9.2f} {row['power_w']:>8.1f} {told:>9.1f} "
        f"{counted:>9.1f} {told / counted:>7.3f}  {row['energy_verdict']}"
        for row, told, counted in zip(rows[1:], told_j, counted_j)
    ]
    return [*found, f"{name:<10} all but the first row: {told_j[1:].sum() / counted_j[1:].sum():.4f}"]


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for what is found; made, and must not exist")
    runs = {run.__name__: run for run in (torchtitan, trainer)}
    parser.add_argument("--only", choices=runs, help="one of the two trainings")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    out.mkdir(parents=True)
    counters = Counters()
    counters.start()
    lines = [f"{'training':<10} step  J a step        W     log J  counters   ratio  verdict"]
    try:
        for name in [options.only] if options.only else runs:
            rows = runs[name](out)
            (out / f"{name}_rows.json").write_text(json.dumps(rows, indent=1))
            lines += compared(name, rows, counters)
            (out / "trainers.txt").write_text("\n".join(lines) + "\n")
    finally:
        counters.is_over.set()
        counters.join()
        np.savetxt(
            out / "counters.csv", counters.read, fmt=["%.4f", *["%d"] * (len(counters.read[0]) - 1)], delimiter=","
        )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
