"""Ordinary training steps through capture, on the GPU that is here: what comes out, and what is refused.

Sets nothing on the GPU. Each case is a process of its own. A step: captured and tried as `kernel-dvfs capture` does
it, then run as a loop of calls and as a graph, each for some seconds beside the energy counter of NVML, read by ctypes
and by nothing of ours; its state is compared bit for bit. A silent case trains wrongly when it is replayed, so it has
to be refused or warned of; a bug has to be refused with the file and line. One JSON line a case, printed and written
to $OUT/any_step.jsonl (or here). What the time limit does not reach is said.

    PYTHONPATH=workflow python3 experiments/benchmarks/any_step.py                 # or: --only mlp_2_clip item
"""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import time
import warnings
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).resolve()
WORKFLOW = HERE.parents[2] / "workflow"
sys.path.insert(0, str(WORKFLOW))
COMPARED, WINDOW_S, CASE_LIMIT_S = 20, 3.0, 110.0


# --- steps ------------------------------------------------------------------------------------------------------------


class Training:
    """A step of an ordinary loop. losses: of each micro-batch; clips: gradients to norm 1."""

    def __init__(self, model, losses, clips=False, tokens=0, **more):
        import torch

        self.model, self.losses, self.clips, self.tokens = model, losses, clips, tokens
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, **({"capturable": True} | more))

    def __call__(self):
        import torch

        self.optimiser.zero_grad(set_to_none=True)
        for loss in self.losses:
            (loss() / len(self.losses)).backward()
        if self.clips:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()

    def state(self):
        moments = [value for each in self.optimiser.state.values() for value in each.values()]
        return [*self.model.parameters(), *self.model.buffers(), *moments]


def mlp(micro, clips):
    import torch
    from torch import nn

    torch.manual_seed(1)
    sizes = (2048, 6144, 2048, 1000)
    layers = [layer for one, two in pairwise(sizes) for layer in (nn.Linear(one, two), nn.GELU())]
    model = nn.Sequential(*layers[:-1]).cuda().bfloat16()
    x = torch.randn(micro, 4096, 2048, device="cuda", dtype=torch.bfloat16)
    y = torch.randint(0, 1000, (micro, 4096), device="cuda")
    return Training(model, [partial(_classified, model, *each) for each in zip(x, y)], clips, micro * 4096)


def _classified(model, x, y):
    from torch.nn.functional import cross_entropy

    return cross_entropy(model(x).float(), y)


def decoder(micro, clips):
    sys.path.insert(0, str(HERE.parent / "own_steps"))
    import torch
    from steps import Gpt

    torch.manual_seed(1)
    model = Gpt(4, 1024, 16, 512, 32000).cuda().bfloat16()
    ids = torch.randint(0, 32000, (micro, 8, 513), device="cuda")
    losses = [partial(model, each[:, :-1].contiguous(), each[:, 1:].contiguous()) for each in ids]
    return Training(model, losses, clips, micro * 8 * 512)


def library(kind, micro, clips):
    """Of the `transformers` library, from a config: random weights, nothing is downloaded."""
    import torch
    import transformers

    torch.manual_seed(1)
    if kind == "decoder":
        sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 16}
        config = transformers.Qwen2Config(
            **sizes, num_key_value_heads=4, vocab_size=32000, use_cache=False, max_position_embeddings=1024
        )
        model = transformers.Qwen2ForCausalLM(config)
    else:
        config = transformers.BertConfig(
            num_hidden_layers=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, vocab_size=30000
        )
        model = transformers.BertForMaskedLM(config)
    model = model.cuda().bfloat16().train()
    ids = torch.randint(0, config.vocab_size, (micro, 8, 512), device="cuda")
    losses = [partial(_loss_of, model, each) for each in ids]
    return Training(model, losses, clips, micro * 8 * 512)


def _loss_of(model, ids):
    return model(input_ids=ids, labels=ids).loss


def _named(make, name):
    """Steps by name, as FILE.py:FUNCTION asks for them."""
    made = {}
    for micro in (2, 1):
        for clips in (True, False):
            made[f"{name}_{micro}_{'clip' if clips else 'free'}"] = partial(make, micro, clips)
    return made


STEPS = _named(partial(library, "decoder"), "hf_decoder") | _named(partial(library, "encoder"), "hf_encoder")
STEPS |= _named(decoder, "decoder") | _named(mlp, "mlp")
# accumulation and clipping of every model first: these broke
STEPS = dict(sorted(STEPS.items(), key=lambda each: (not each[0].endswith("2_clip"), not each[0].endswith("1_free"))))


# --- what trains wrongly when it is replayed --------------------------------------------------------------------------


def _small(**more):
    import torch

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256)).cuda()
    x = torch.randn(64, 256, device="cuda")
    return Training(model, [lambda: model(x).square().mean()], **more)


class SchedulerInside(Training):
    """The learning rate changes with every call; a graph holds that of one."""

    def __call__(self):
        if not hasattr(self, "scheduler"):
            import torch

            self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimiser, lambda number: 1.0 + number)
        super().__call__()
        self.scheduler.step()


class LoaderInside(Training):
    """Each call copies another batch from the host; a graph holds one host buffer."""

    def __call__(self):
        import torch

        if not hasattr(self, "batches"):
            # a loader keeps what it has read until it is asked for the next one
            self.batches, self.number = [torch.randn(64, 256).pin_memory() for _ in range(8)], 0
            self.x = torch.empty(64, 256, device="cuda")
            self.losses = [lambda: self.model(self.x).square().mean()]
        self.x.copy_(self.batches[self.number % 8], non_blocking=True)
        self.number += 1
        super().__call__()


class NoOptimiser(Training):
    def __call__(self):
        self.optimiser.zero_grad(set_to_none=True)
        for loss in self.losses:
            loss().backward()


def _silent(kind):
    made = _small()
    made.__class__ = kind
    return made


SILENT = {"scheduler_inside": SchedulerInside, "loader_inside": LoaderInside, "no_optimiser": NoOptimiser}
SILENT = {name: partial(_silent, kind) for name, kind in SILENT.items()}


# --- what cannot be captured ------------------------------------------------------------------------------------------


def _with(after):
    made = _small()

    def step():
        made()
        after(made, made.losses[0]())

    return step


def _host_if(made, loss):
    if loss > 0:
        loss.square()


def _unpinned(made, loss):
    import torch

    torch.randn(64, 256).to("cuda", non_blocking=True)


def _dropout(made, loss):
    import torch

    torch.nn.functional.dropout(loss.expand(1024), 0.1).sum()


BUGS = {
    "item": lambda made, loss: loss.item(),
    "host_copy": lambda made, loss: loss.cpu(),
    "host_if": _host_if,
    "nonzero": lambda made, loss: loss.expand(8).nonzero(),
    "masked_index": lambda made, loss: loss.expand(8)[loss.expand(8) > 0].sum(),
    "unpinned": _unpinned,
    "dropout": _dropout,
    "synchronize": lambda made, loss: __import__("torch").cuda.synchronize(),
}
BUGS = {name: partial(_with, after) for name, after in BUGS.items()}
BUGS["not_capturable"] = partial(_small, capturable=False)
CASES = STEPS | SILENT | BUGS
globals().update(CASES)


# --- one case, in its process -----------------------------------------------------------------------------------------


class Counter:
    """NVML's energy counter of the GPU that torch uses, read by ctypes."""

    def __init__(self):
        import torch

        self._nvml, self._handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}".encode()
        if self._nvml.nvmlInit_v2() or self._nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(self._handle)):
            raise SystemExit("NVML does not know the GPU that torch uses")

    def edge(self):
        """(s, J) where the counter next moves."""
        last, now = self._joule(), None
        while (now := self._joule()) == last:
            pass
        return time.perf_counter(), now

    def _joule(self):
        value = ctypes.c_ulonglong()
        if self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle, ctypes.byref(value)):
            raise SystemExit("NVML has no energy counter here")
        return value.value / 1e3

    def of(self, run):
        """(ms, J) of one run, over some seconds of runs after one second of them."""
        import torch

        def for_s(seconds):
            begin_s, count = time.perf_counter(), 0
            while time.perf_counter() - begin_s < seconds:
                for _ in range(4):
                    run()
                count += 4
                torch.cuda.synchronize()
            return count, time.perf_counter() - begin_s

        for_s(1.0)
        begin_s, begin_j = self.edge()
        count, seconds = for_s(WINDOW_S)
        end_s, end_j = self.edge()
        return 1e3 * seconds / count, (end_j - begin_j) / (end_s - begin_s) * seconds / count


def tried(name, results):
    """As `kernel-dvfs capture` does it."""
    from kernel_dvfs.step import capturing

    said, begin_s = [], time.perf_counter()
    record = capturing.capture(f"{HERE}:{name}", results_dir=results, say=said.append)
    whole = record.whole
    known = {key: getattr(whole, key) for key in ("time_us", "rebuilt_us", "same_bits", "deterministic")}
    for key in ("loop_us", "loop_j", "graph_j"):  # what the record says of loop and graph, where it does
        known[key] = getattr(whole, key, None)
    lost = [line for line in said if "going on without it" in line]
    return known | {
        "device": record.device["name"],
        "nodes": len(record.nodes),
        "targets": len(record.targets),
        "coverage": record.coverage,
        "capture_s": round(time.perf_counter() - begin_s, 1),
        "lost": lost,
        "left_at_auto": {each.id: each.reason for each in record.left_at_auto},
        "not_repeated": record.not_repeated,
        "by_difference": record.by_difference,
    }


def moved(step, run, count):
    """How far the parameters move in so many runs, and where they are then."""
    import torch

    before = torch.cat([each.detach().double().flatten() for each in step.model.parameters()])
    for _ in range(count):
        run()
    torch.cuda.synchronize()
    after = torch.cat([each.detach().double().flatten() for each in step.model.parameters()])
    return float((after - before).norm())


def loop_and_graph(name, results):
    """Loop and graph beside NVML; the state after restoring; replays against calls."""
    import torch

    import kernel_dvfs

    step, counter = CASES[name](), Counter()
    for _ in range(3):
        step()
    found = dict(zip(("nvml_loop_ms", "nvml_loop_j"), counter.of(step)))
    captured = kernel_dvfs.capture(step, results_dir=results)
    captured.save()
    kept = [each.detach().clone() for each in step.state()]
    found |= dict(zip(("nvml_graph_ms", "nvml_graph_j"), counter.of(captured.replay)))
    captured.restore()
    torch.cuda.synchronize()
    found["state_back"] = all(torch.equal(one, other) for one, other in zip(step.state(), kept, strict=True))
    found["moved_by_replays"] = moved(step, captured.replay, COMPARED)
    captured.restore()
    found["moved_by_calls"] = moved(step, step, COMPARED)
    return found | {"tokens": step.tokens}


def silent(name, results):
    """What was said of it, and how wrong it is."""
    import kernel_dvfs
    from kernel_dvfs.errors import InputError

    step = CASES[name]()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            captured = kernel_dvfs.capture(step, results_dir=results)
        except InputError as error:
            return {"came": "refused", "said": str(error)}
    said = [str(each.message) for each in seen if "kernel" in str(each.filename) or "step" in str(each.message)]
    found = {"came": "warned" if said else "taken without a word", "said": said}
    return found | {
        "moved_by_replays": moved(step, captured.replay, COMPARED),
        "moved_by_calls": moved(step, step, COMPARED),
    }


def bug(name, results):
    from kernel_dvfs.errors import InputError
    from kernel_dvfs.step import capturing

    try:
        capturing.capture(f"{HERE}:{name}", results_dir=results, say=lambda line: None)
    except InputError as error:
        found = re.search(rf"{HERE.name}:\d+", str(error))
        return {"came": "refused", "place": found[0] if found else None, "said": str(error)}
    return {"came": "taken"}


def one(name, results):
    """Each part by itself, so that what fails does not hide the rest."""
    parts = [tried, loop_and_graph] if name in STEPS else [silent] if name in SILENT else [bug]
    found = {}
    for part in parts:
        try:
            found |= part(name, results)
        except Exception as error:
            found[f"{part.__name__}_failed"] = f"{type(error).__name__}: {error}"
    print("RESULT " + json.dumps(found), flush=True)


# --- all of them ------------------------------------------------------------------------------------------------------


def run(name, results, limit_s):
    begin_s = time.perf_counter()
    words = [sys.executable, str(HERE), "--one", name, "--results", results]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        output, errors = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)  # it started its own process for the capture
        output, errors = child.communicate()
        errors += f"\nended after {limit_s:.0f} s"
    results_of = [line for line in output.splitlines() if line.startswith("RESULT ")]
    found = json.loads(results_of[-1].removeprefix("RESULT ")) if results_of else {"failed": errors[-600:]}
    lines = errors.splitlines()
    found |= {"stderr_lines": len(lines), "asserts": sum("ssertion" in line for line in lines)}
    return found | {"total_s": round(time.perf_counter() - begin_s, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CASES), metavar="CASE", help=f"of: {', '.join(CASES)}")
    parser.add_argument("--limit-s", type=float, default=460.0, help="of all cases (default: 460)")
    parser.add_argument("--results", default="results", help="the folder with the native layer (default: results)")
    parser.add_argument("--one", choices=list(CASES), metavar="CASE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.results)
        return
    if not find_spec("torch"):
        sys.exit("any_step: torch is not installed: pip install torch")
    begin_s = time.perf_counter()
    native = Path(options.results) / "native"
    if not (native / "graph" / "build.json").exists():
        words = [sys.executable, "-m", "kernel_dvfs", "build", "--graph", "on", "--out", str(native)]
        environment = os.environ | {"PYTHONPATH": str(WORKFLOW)}
        subprocess.run(words, check=True, env=environment)
    first, rest = list(STEPS)[:4], list(STEPS)[4:]
    names = options.only or [*first, *SILENT, *BUGS, *rest]
    with (Path(os.environ.get("OUT", ".")) / "any_step.jsonl").open("w", encoding="utf-8") as file:
        for name in names:
            left_s = options.limit_s - (time.perf_counter() - begin_s)
            if name.startswith("hf_") and not find_spec("transformers"):
                found = {"skipped": "the transformers library is not installed"}
            elif left_s < 20:
                found = {"skipped": "no time left"}
            else:
                found = run(name, options.results, min(CASE_LIMIT_S, left_s))
            kind = "step" if name in STEPS else "silent" if name in SILENT else "bug"
            line = json.dumps({"case": name, "kind": kind} | found)
            print(line, flush=True)
            print(line, file=file, flush=True)


if __name__ == "__main__":
    main()
