"""Does `kernel-dvfs tune --dry-run` count the steps of common training loops, and what does it cost them?

Three loops on the GPU of this machine: plain PyTorch, the Trainer of transformers (left out where it is
not installed), and one that prints in the style of a large-scale trainer, a line each ten steps. Each runs alone and
beside the dry run in turn, in one session; no clock is set. Printed for each loop: steps counted and done (the
first number that is printed only says where counting begins), and the ratio of the loop's own median step
time with and without.

    python experiments/benchmarks/tune_dry_run.py --repeats 3 --steps 600
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_MODEL = """
import statistics, sys, time, torch
steps = int(sys.argv[1])
wide = 4096
model = torch.nn.Sequential(*(torch.nn.Linear(wide, wide) for _ in range(8))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
data = torch.randn(2048, wide, device="cuda")
took = []
def train():
    began = time.perf_counter()
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
    torch.cuda.synchronize()
    took.append(time.perf_counter() - began)
"""
_TOLD = "print('median step s', statistics.median(took[10:]), flush=True)\n"
_PLAIN = _MODEL + "for step in range(steps):\n    train()\n    print(f'iter {step} loss 1.0', flush=True)\n" + _TOLD
_LARGE_SCALE = (
    _MODEL
    + "for step in range(1, steps + 1):\n    train()\n    if step % 10 == 0:\n"
    + "        print(f' iteration {step:8d}/{steps:8d} | consumed samples: {step * 16} | elapsed time per "
    + "iteration (ms): {1e3 * took[-1]:.1f} | lm loss: 1.0E+00 |', flush=True)\n"
    + _TOLD
)
_TRAINER = """
import statistics, sys, time, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
steps = int(sys.argv[1])
took = []
class Watch(TrainerCallback):
    def on_step_begin(self, *_, **__):
        self.began = time.perf_counter()
    def on_step_end(self, args, state, *_, **__):
        torch.cuda.synchronize()
        took.append(time.perf_counter() - self.began)
        print(f"step {state.global_step}", flush=True)
ids = torch.randint(0, 1000, (64, 512))
data = [{"input_ids": each, "labels": each} for each in ids] * (steps // 8 + 1)
where = sys.argv[2]
arguments = TrainingArguments(where, max_steps=steps, per_device_train_batch_size=8, report_to=[], save_strategy="no")
model = GPT2LMHeadModel(GPT2Config(vocab_size=1000))
Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Watch()]).train()
"""
_LOOPS = {
    "plain PyTorch": (_PLAIN, r"iter (\d+)"),
    "transformers Trainer": (_TRAINER + _TOLD, r"^step (\d+)"),
    "large-scale trainer's log": (_LARGE_SCALE, r"iteration +(\d+)/"),
}


def run(code: str, progress: str, steps: int, folder: Path, is_watched: bool) -> tuple[float, int]:
    """(median step s, steps counted; 0 where nobody counts)."""
    loop = [sys.executable, "-c", code, str(steps), str(folder / "trainer")]
    report = folder / "report.json"
    tune = [sys.executable, "-m", "kernel_dvfs", "tune", "--dry-run", "--progress", progress, "--report", str(report)]
    done = subprocess.run([*tune, "--", *loop] if is_watched else loop, capture_output=True, text=True, check=False)
    found = re.search(r"median step s (\S+)", done.stdout)
    if done.returncode or not found:
        raise SystemExit(f"error: the loop failed:\n{done.stderr}")
    return float(found[1]), json.loads(report.read_text())["steps"] if is_watched else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, (code, progress) in _LOOPS.items():
            if name.startswith("transformers") and not importlib.util.find_spec("transformers"):
                print(f"{name}: not installed, left out")
                continue
            times: dict[bool, list[float]] = {False: [], True: []}
            counts = []
            for repeat in range(options.repeats):
                for is_watched in (False, True) if repeat % 2 == 0 else (True, False):
                    step_s, count = run(code, progress, options.steps, Path(folder), is_watched)
                    times[is_watched].append(step_s)
                    counts += [count] if is_watched else []
            ratio = statistics.median(times[True]) / statistics.median(times[False])
            print(
                f"{name}: {counts} steps counted of {options.steps}; a step takes "
                f"{1e3 * statistics.median(times[False]):.3f} ms alone, with the dry run {100 * (ratio - 1):+.3f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
