"""Does `kernel-dvfs tune --dry-run` count the steps of common training loops, and what does it cost them?

Four loops on the GPU of this machine: plain PyTorch, the Trainer of transformers with its own progress bar (left out
where it is not installed), one that prints in the style of a large-scale trainer, a line each ten steps, and plain
PyTorch with `kernel_dvfs.tune(dry_run=True)` inside. Each has two processes, one alone and one beside the dry run. They
take turns on the same GPU: alone, beside, beside, alone, half a second each, so that whatever drifts cancels. No clock
is set. Printed for each loop, and written to a file: steps counted and done, a step's time as the dry run and as the
loop itself saw it in the same seconds, and by how much a step takes longer beside the dry run, with a 90 % interval
over rounds.

The number that is printed first only says where counting begins, so steps up to it are not to be counted. Without a
GPU everything is small and on the CPU; the counts are still true.

    python experiments/benchmarks/tune_dry_run.py --seconds 140 -o tune_dry_run.json
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "workflow"))

LOOK_S = 13.0  # of steps, in which the dry run has looked: it wants 20 steps and 10 s
BLOCK_S = 0.5
_MANY = 1_000_000  # steps that a trainer is told to make; it is ended before


# --- a loop, in a process of its own ----------------------------------------------------------------------------------


class Turns:
    """The loop's end: it trains so many steps as it is told to, tells how long they took, and waits."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._lines = self._socket.makefile()
        self._left = 0

    def wait(self) -> bool:
        """Whether there are more steps to do."""
        self._left = int(self._lines.readline() or 0)
        self._began_s = time.perf_counter()
        return self._left > 0

    def step(self) -> bool:
        """A step is done; whether to go on."""
        self._left -= 1
        if self._left > 0:
            return True
        self._socket.sendall(f"{time.perf_counter() - self._began_s}\n".encode())
        return self.wait()


def model_step() -> Callable[[], object]:
    """A training step in plain PyTorch, back when the device has done it."""
    import torch

    wide, rows, device = (4096, 2048, "cuda") if torch.cuda.is_available() else (64, 64, "cpu")
    model = torch.nn.Sequential(*(torch.nn.Linear(wide, wide) for _ in range(8))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    data = torch.randn(rows, wide, device=device)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        rest()
        return loss.item()  # which waits for the device

    return step


def rest() -> None:
    """Without a GPU a step would take no time, and a machine's other work would be most of it."""
    import torch

    if not torch.cuda.is_available():
        time.sleep(0.02)


def plain(turns: Turns, inside: str) -> None:
    train = model_step()
    if turns.wait():
        for number in itertools.count(1):
            print(f"iter {number} loss {train():.4f}", flush=True)
            if not turns.step():
                return


def inside_python(turns: Turns, inside: str) -> None:
    train = model_step()
    if not inside:
        return plain(turns, inside)
    from kernel_dvfs_deploy.tune import tune

    with tune(dry_run=True) as tuner:
        if turns.wait():
            for number in itertools.count(1):
                print(f"iter {number} loss {train():.4f}", flush=True)
                tuner.step()
                if not turns.step():
                    break
    Path(inside).write_text(json.dumps(tuner.summary()))


def large_scale(turns: Turns, inside: str) -> None:
    train = model_step()
    if turns.wait():
        for number in itertools.count(1):
            began_s = time.perf_counter()
            loss = train()
            if number % 10 == 0:
                ms = 1e3 * (time.perf_counter() - began_s)
                print(
                    f" [2026-01-01 00:00:00] iteration {number:8d}/{_MANY:8d} | consumed samples: {16 * number:12d} | "
                    f"elapsed time per iteration (ms): {ms:.1f} | learning rate: 1.000000E-05 | global batch size:    "
                    f"16 | lm loss: {loss:.6E} | number of skipped iterations:   0 |",
                    flush=True,
                )
            if not turns.step():
                return


def trainer(turns: Turns, inside: str) -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    on_gpu = torch.cuda.is_available()

    class Watch(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            turns.wait()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            rest()
            if on_gpu:
                torch.cuda.synchronize()
            if not turns.step():
                control.should_training_stop = True

    rows, tokens, sizes = (8, 512, {}) if on_gpu else (2, 16, {"n_layer": 1, "n_head": 2, "n_embd": 32})
    ids = torch.randint(0, 1000, (64, tokens))
    data = [{"input_ids": each, "labels": each} for each in ids] * 1000
    model = GPT2LMHeadModel(GPT2Config(vocab_size=1000, **sizes))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=_MANY,
            per_device_train_batch_size=rows,
            report_to=[],
            save_strategy="no",
            use_cpu=not on_gpu,
        )
        Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Watch()]).train()


# {name: (loop, --progress or None where it tunes itself, steps that can be counted of so many done)}
LOOPS: dict[str, tuple[Callable[[Turns, str], None], str | None, Callable[[int], int]]] = {
    "plain PyTorch": (plain, r"iter (\d+)", lambda done: done - 1),
    "transformers Trainer": (trainer, rf"(\d+)/{_MANY} ", lambda done: done),
    "large-scale trainer's log": (large_scale, r"iteration +(\d+)/", lambda done: done // 10 * 10 - 10),
    "plain PyTorch, kernel_dvfs.tune inside": (inside_python, None, lambda done: done),
}


# --- turns ------------------------------------------------------------------------------------------------------------


class Run:
    """A process of a loop, alone or beside the dry run."""

    def __init__(self, name: str, is_watched: bool, folder: Path) -> None:
        progress = LOOPS[name][1]
        place = folder / f"{list(LOOPS).index(name)}-{is_watched:d}"
        (place / "locks").mkdir(parents=True)
        self.name, self.done, self.report, self.log = name, 0, place / "report.json", place / "log"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(place / "turns"))
        self._listener.listen()
        words = [sys.executable, __file__, "--loop", name, "--at", str(place / "turns")]
        if is_watched and progress is None:
            words += ["--inside", str(self.report)]
        elif is_watched:
            tune = ["tune", "--dry-run", "--share", "--progress", str(progress), "--report", str(self.report)]
            words = [sys.executable, "-m", "kernel_dvfs", *tune, "--", *words]
        path = os.pathsep.join([str(ROOT / "workflow"), *filter(None, [os.environ.get("PYTHONPATH")])])
        # several dry runs of one GPU, side by side: none of them sets anything, so each may have leases of its own
        own = os.environ | {"PYTHONPATH": path, "KERNEL_DVFS_LOCK_DIR": str(place / "locks")}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(words, env=own, stdout=log, stderr=log)

    def connect(self) -> None:
        """Wait until it is ready to train."""
        self._listener.settimeout(1)
        while True:
            try:
                self._connection, _ = self._listener.accept()
                break
            except TimeoutError:
                if self.process.poll() is not None:
                    self.fail()
        self._connection.settimeout(300)
        self._lines = self._connection.makefile()

    def train(self, steps: int) -> float:
        """Seconds a step, of so many steps."""
        answer = ""
        with suppress(ConnectionError):
            self._connection.sendall(f"{steps}\n".encode())
            answer = self._lines.readline()
        if not answer:
            self.fail()
        self.done += steps
        return float(answer) / steps

    def end(self) -> None:
        self._connection.sendall(b"0\n")
        if self.process.wait(60):
            self.fail()

    def fail(self) -> None:
        raise SystemExit(f"error: {self.name} failed:\n{self.log.read_text(errors='replace')[-3000:]}")


def compare(names: list[str], end_s: float, folder: Path) -> list[dict[str, Any]]:
    """A row a loop."""
    from kernel_dvfs.student import t_quantile

    runs = {name: (Run(name, False, folder), Run(name, True, folder)) for name in names}
    for both in runs.values():
        for each in both:
            each.connect()
    looked, steps = {}, {}
    for name, (alone, watched) in runs.items():
        alone.train(10)
        steps[name] = max(2, round(BLOCK_S / alone.train(10)))
        watched.train(5)  # they may take longer; a block of the look does
        until_s, seen = time.monotonic() + LOOK_S, []
        while time.monotonic() < until_s:
            seen.append(watched.train(steps[name]))
        looked[name] = statistics.mean(seen)
        alone.train(steps[name])
    changes: dict[str, list[float]] = {name: [] for name in names}
    own_s: dict[str, list[float]] = {name: [] for name in names}
    while time.monotonic() < end_s or len(changes[names[0]]) < 3:
        for name, (alone, watched) in runs.items():
            turns = (alone, watched, watched, alone) if len(own_s[name]) % 4 == 0 else (watched, alone, alone, watched)
            took: dict[Run, float] = {alone: 0.0, watched: 0.0}
            for each in turns:
                took[each] += each.train(steps[name]) / 2
            changes[name].append(100 * (took[watched] / took[alone] - 1))
            own_s[name] += [took[alone]] * 2
    rows = []
    for name, both in runs.items():
        for each in both:
            each.end()
        told, values = json.loads(both[1].report.read_text()), changes[name]
        half = t_quantile(len(values) - 1, 0.95) * statistics.stdev(values) / len(values) ** 0.5
        mean = statistics.mean(values)
        rows.append(
            {
                "loop": name,
                "steps_done": both[1].done,
                "steps_to_count": LOOPS[name][2](both[1].done),
                "steps_counted": told["steps"],
                "step_ms": 1e3 * statistics.mean(own_s[name]),
                "look_step_ms": 1e3 * looked[name],
                "look_step_ms_by_dry_run": 1e3 * told["auto_step_s"] if "auto_step_s" in told else None,
                "step_j_by_dry_run": told.get("auto_step_j"),
                "slower_percent": mean,
                "slower_percent_90": [mean - half, mean + half],
                "rounds": values,
            }
        )
        row = rows[-1]
        seen_ms = row["look_step_ms_by_dry_run"]
        print(
            f"{name}: {row['steps_counted']} steps counted of {row['steps_to_count']} that can be; a step took "
            f"{row['look_step_ms']:.3f} ms, by the dry run "
            f"{'unknown' if seen_ms is None else f'{seen_ms:.3f} ms'}; beside it a step takes {mean:+.3f} % "
            f"({mean - half:+.3f} to {mean + half:+.3f} %, {len(values)} rounds)",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=140, help="of all, about")
    parser.add_argument("-o", "--output", metavar="T.json")
    for own in ("--loop", "--at", "--inside"):  # how a loop is started
        parser.add_argument(own, default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        LOOPS[options.loop][0](Turns(options.at), options.inside)
        return
    import torch

    from kernel_dvfs_clocks.files import write_json

    names = [name for name in LOOPS if "transformers" not in name or importlib.util.find_spec("transformers")]
    end_s = time.monotonic() + options.seconds - 5
    with tempfile.TemporaryDirectory() as folder:
        rows = compare(names, end_s, Path(folder))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    if options.output:
        write_json(options.output, {"device": device, "torch": torch.__version__, "loops": rows})


if __name__ == "__main__":
    main()
