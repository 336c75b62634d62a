"""Ordinary training steps through capture, on the GPU that is here: what comes out, and what is refused.

Sets nothing on the GPU. Each case is a process of its own. A step: captured and tried as `kernel-dvfs capture` does
it, then run as a loop of calls and as a graph, each for some seconds beside the energy counter of NVML, read by ctypes
and by nothing of ours; its state is compared bit for bit. A silent case trains wrongly when it is replayed, so it has
to be refused or warned of; a bug has to be refused with the file and line. One JSON line a case, printed and written
to $OUT/any_step.jsonl (or here). What the time limit does not reach is said.

    PYTHONPATH=workflow python3 experiments/benchmarks/any_step.py                 # or: --only ddp_eager_2_clip item

With and without the masks that make some graphs dearer than their loops (any_step_h100.txt has what came out):

    PYTHONPATH=workflow python3 experiments/benchmarks/any_step.py --limit-s 570 --only \
        bert_eager_1_clip bert_unmasked_eager_1_clip vit_eager_2_free vit_unmasked_eager_2_free \
        bart_eager_2_clip bart_unmasked_eager_2_clip
"""

import argparse
import csv
import ctypes
import json
import os
import re
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve()
WORKFLOW = HERE.parents[2] / "workflow"
sys.path.insert(0, str(WORKFLOW))
COLUMNS = ["case", "kind", "came", "place", "nodes", "targets", "coverage", "capture_s", "made_s", "first_call_s"]
COLUMNS += ["asserts", "same_bits"]
COLUMNS += ["deterministic", "state_back", "moved_by_calls", "moved_by_replays", "time_us", "record_loop_us"]
COLUMNS += ["record_loop_j", "record_graph_us", "record_graph_j", "loop_ms", "loop_nvml_ms", "loop_j", "loop_nvml_j"]
COLUMNS += ["graph_ms", "graph_nvml_ms", "graph_j", "graph_nvml_j", "said"]
_TIMES = "ANY_STEP_TIMES"
COMPARED, WINDOW_S, CASE_LIMIT_S, LEAST_S = 20, 3.0, 150.0, 35


# --- steps ------------------------------------------------------------------------------------------------------------


class Training:
    """A step of an ordinary loop. losses: of each micro-batch; clips: gradients to norm 1."""

    def __init__(self, model, losses, clips=False, **more):
        import torch

        self.model, self.losses, self.clips = model, losses, clips
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


def _loss_of(model, batch):
    return model(**batch).loss


def _classified(model, x, y):
    from torch.nn.functional import cross_entropy

    return cross_entropy(model(x), y)


def _denoised(model, x, noise, times):
    from torch.nn.functional import mse_loss

    return mse_loss(model(x, times).sample, noise)


# of the `transformers` library, from a config: random weights, nothing is downloaded; sizes that take milliseconds
_WIDE = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 16}
_WIDE |= {"num_key_value_heads": 4, "vocab_size": 32000, "use_cache": False, "max_position_embeddings": 1024}
_PLAIN = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_T5 = {"d_model": 768, "d_ff": 2048, "num_layers": 4, "num_decoder_layers": 4, "num_heads": 12, "dropout_rate": 0.0}
_T5 |= {"use_cache": False, "decoder_start_token_id": 0, "pad_token_id": 0}
_BART = {"d_model": 768, "encoder_layers": 4, "decoder_layers": 4, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
_BART |= {"encoder_attention_heads": 12, "decoder_attention_heads": 12, "dropout": 0.0, "use_cache": False}
_GPT2 = {"n_layer": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}
_BERT = {"num_hidden_layers": 4, "vocab_size": 30000} | _PLAIN
_MODERN = {"num_hidden_layers": 4, "vocab_size": 30000, "reference_compile": False, "pad_token_id": 0}
_MIXTURE = _WIDE | {"num_local_experts": 4, "intermediate_size": 1408}
LIBRARY = {
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _WIDE, 512),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _WIDE, 512),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", _GPT2, 512),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", _MIXTURE, 512),
    "bert": ("BertForMaskedLM", "BertConfig", _BERT, 512),
    "modernbert": ("ModernBertForMaskedLM", "ModernBertConfig", _MODERN, 512),
    "t5": ("T5ForConditionalGeneration", "T5Config", _T5, 256),
    "bart": ("BartForConditionalGeneration", "BartConfig", _BART, 256),
    "vit": ("ViTForImageClassification", "ViTConfig", {"num_hidden_layers": 6, "num_labels": 1000} | _PLAIN, 0),
}
MICRO_BATCH = 8
# of these, attention that is handed no mask, captured or not
UNMASKED = "_unmasked"


def library(kind, micro, clips, compiled):
    import torch
    import transformers

    torch.manual_seed(1)
    model_name, config_name, sizes, length = LIBRARY[kind.removesuffix(UNMASKED)]
    config = getattr(transformers, config_name)(**sizes)
    model = getattr(transformers, model_name)(config).cuda().bfloat16().train()
    if kind.endswith(UNMASKED):
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        # the library makes masks only for attentions that it knows a function of masks for
        transformers.AttentionInterface.register("unmasked", sdpa_attention_forward)
        model.set_attn_implementation("unmasked")
    run = torch.compile(model) if compiled else model
    batches = []
    for _ in range(micro):
        if length:
            ids = torch.randint(0, config.vocab_size, (MICRO_BATCH, length), device="cuda")
            batches.append({"input_ids": ids, "labels": ids})
        else:
            x = torch.randn(4 * MICRO_BATCH, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
            batches.append({"pixel_values": x, "labels": torch.randint(0, 1000, (4 * MICRO_BATCH,), device="cuda")})
    made = Training(model, [partial(_loss_of, run, each) for each in batches], clips)
    if length:
        made.tokens = micro * MICRO_BATCH * length
    else:
        made.samples = micro * 4 * MICRO_BATCH
    return made


def vision(kind, micro, clips, compiled):
    import torch
    import torchvision

    torch.manual_seed(1)
    model = getattr(torchvision.models, kind)(**({"stochastic_depth_prob": 0.0} if "convnext" in kind else {}))
    model = model.cuda().bfloat16().train()
    run = torch.compile(model) if compiled else model
    x = torch.randn(micro, 4 * MICRO_BATCH, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    y = torch.randint(0, 1000, (micro, 4 * MICRO_BATCH), device="cuda")
    made = Training(model, [partial(_classified, run, *each) for each in zip(x, y)], clips)
    made.samples = micro * 4 * MICRO_BATCH
    return made


def diffusion(kind, micro, clips, compiled):
    import diffusers
    import torch

    torch.manual_seed(1)
    model = diffusers.UNet2DModel(sample_size=64, block_out_channels=(128, 256, 384, 512), layers_per_block=1)
    model = model.cuda().bfloat16().train()
    run = torch.compile(model) if compiled else model
    x, noise = torch.randn(2, micro, MICRO_BATCH, 3, 64, 64, device="cuda", dtype=torch.bfloat16)
    times = torch.randint(0, 1000, (micro, MICRO_BATCH), device="cuda")
    made = Training(model, [partial(_denoised, run, *each) for each in zip(x, noise, times)], clips)
    made.samples = micro * MICRO_BATCH
    return made


def parallel(kind, micro, clips, compiled):
    """Data parallel over a world of one: what a rank of a larger one runs."""
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.manual_seed(1)
    if not dist.is_initialized():
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    layers = [layer for _ in range(4) for layer in (nn.Linear(2048, 2048), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(2048, 1000)).cuda().bfloat16()
    with torch.cuda.stream(torch.cuda.Stream()):  # as torch's notes on CUDA graphs ask
        run = nn.parallel.DistributedDataParallel(model, device_ids=[0])
    x = torch.randn(micro, 4096, 2048, device="cuda", dtype=torch.bfloat16)
    y = torch.randint(0, 1000, (micro, 4096), device="cuda")
    made = Training(model, [partial(_classified, run, *each) for each in zip(x, y)], clips)
    made.samples = micro * 4096
    return made


MODELS = dict.fromkeys(LIBRARY, (library, "transformers"))
MODELS |= {f"{name}{UNMASKED}": (library, "transformers") for name in ("bert", "bart", "vit")}
MODELS |= {"resnet50": (vision, "torchvision"), "convnext_tiny": (vision, "torchvision")}
MODELS |= {"unet": (diffusion, "diffusers"), "ddp": (parallel, "torch")}
STEPS = {
    f"{name}_{how}_{micro}_{'clip' if clips else 'free'}": partial(make, name, micro, clips, how == "compiled")
    for how in ("eager", "compiled")
    for micro in (2, 1)
    for clips in (True, False)
    for name, (make, _) in MODELS.items()
}


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


def _kept_graph():
    """A loss that is kept keeps the graph of its call, whose stream is another one than the capture's."""
    made = _small()
    held = made.losses[0]()

    def step():
        made()
        return held

    return step


BUGS["kept_graph"] = _kept_graph
BUGS["not_capturable"] = partial(_small, capturable=False)
CASES = STEPS | SILENT | BUGS
globals().update(CASES)


# --- one case, in its process -----------------------------------------------------------------------------------------


class Counter:
    """NVML's energy counter of the GPU that torch uses, watched by a process of its own."""

    def __init__(self):
        import torch

        self._uuid = uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
        self._process = subprocess.Popen(
            [sys.executable, str(HERE), "--meter", uuid], stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._process.stdout.readline()  # it watches

    def of(self, run, put_back):
        """{ms, j, nvml_ms, nvml_j} of one run, back to back: by this package, and for the same runs by CUDA's events
        and by the process that watches the counter."""
        import torch

        from kernel_dvfs_step.beside import Beside

        beside, ran = Beside(), []
        beside.open(self._uuid, share=True)

        def marked():
            run()
            ran.append((time.monotonic(), torch.cuda.Event(enable_timing=True)))
            ran[-1][1].record()

        cost = beside.cost(marked, put_back, torch.cuda.synchronize, WINDOW_S)
        within = [each for each in ran if each[0] >= ran[-1][0] - WINDOW_S + 0.2]
        begin_s, end_s = within[0][0], within[-1][0]
        step_ms = within[0][1].elapsed_time(within[-1][1]) / (len(within) - 1)
        seen = []
        while not seen or seen[-1][0] < end_s:
            seen.append(tuple(float(each) for each in self._process.stdout.readline().split()))
        inside = [each for each in seen if begin_s <= each[0] <= end_s]
        (first_s, first_j), (last_s, last_j) = inside[0], inside[-1]
        joule = (last_j - first_j) / (last_s - first_s) * 1e-3 * step_ms
        return {"ms": 1e3 * cost.time_s, "j": cost.energy_j, "nvml_ms": step_ms, "nvml_j": joule}

    def close(self):
        self._process.kill()
        self._process.wait()


def meter(uuid):
    """Print (s, J) whenever the counter of the GPU moves, until killed. By ctypes, and by nothing of ours."""
    nvml, handle, value = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.c_ulonglong()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
        sys.exit("NVML does not know the GPU that torch uses")
    last = None
    while not nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(value)):
        if value.value != last:
            last = value.value
            print(time.monotonic(), last / 1e3, flush=True)
        time.sleep(0.0005)
    sys.exit("NVML has no energy counter here")


class Timed:
    """A step whose making (the imports, the model) and first call (torch.compile) take a time that is no capture's:
    written where _TIMES says, by the process that captures."""

    def __init__(self, name, path):
        begin_s = time.perf_counter()
        self._step, self._path = CASES[name](), path
        self._made_s, self._is_called = time.perf_counter() - begin_s, False
        for word in ("tokens", "samples"):
            if hasattr(self._step, word):
                setattr(self, word, getattr(self._step, word))

    def __call__(self):
        if self._is_called:
            return self._step()
        import torch

        begin_s, self._is_called = time.perf_counter(), True
        self._step()
        torch.cuda.synchronize()
        found = {"made_s": self._made_s, "first_call_s": time.perf_counter() - begin_s}
        Path(self._path).write_text(json.dumps(found), encoding="utf-8")


def timed():
    """What `kernel-dvfs capture` opens: the case that the environment names."""
    name, path = os.environ[_TIMES].split(":", 1)
    return Timed(name, path)


def tried(name, results):
    """As `kernel-dvfs capture` does it."""
    from kernel_dvfs_step import capturing

    said, begin_s = [], time.perf_counter()
    path = Path(results) / "any_step_times.json"
    os.environ[_TIMES] = f"{name}:{path}"

    def say(line):
        said.append(line)
        print(f"{time.perf_counter() - begin_s:.1f} s: {line}", file=sys.stderr, flush=True)

    record = capturing.capture(f"{HERE}:timed", results_dir=results, say=say)
    whole = record.whole
    known = {key: getattr(whole, key) for key in ("time_us", "rebuilt_us", "same_bits", "deterministic")}
    known |= {f"record_{key}": getattr(whole, key) for key in ("loop_us", "loop_j", "graph_us", "graph_j")}
    lost = [line for line in said if "going on without it" in line]
    return known | {
        "device": record.device["name"],
        "nodes": len(record.nodes),
        "targets": len(record.targets),
        "coverage": record.coverage,
        "capture_s": round(time.perf_counter() - begin_s, 1),
        **{key: round(value, 1) for key, value in json.loads(path.read_text()).items()},
        "lost": lost,
        "left_at_auto": {each.id: each.reason for each in record.left_at_auto},
        "not_repeated": record.not_repeated,
        "by_difference": record.by_difference,
        "frozen": record.frozen,
        "noticed": record.noticed,
        "items": record.items,
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
    kept = [each.detach().clone() for each in step.state()]

    def put_back():
        with torch.no_grad():
            for one, other in zip(step.state(), kept):
                one.copy_(other)

    found = {f"loop_{key}": value for key, value in counter.of(step, put_back).items()}
    captured = kernel_dvfs.capture(step, results_dir=results)
    captured.save()
    kept = [each.detach().clone() for each in step.state()]
    of_graph = counter.of(captured.replay, captured.restore)
    found |= {f"graph_{key}": value for key, value in of_graph.items()}
    counter.close()
    captured.restore()
    torch.cuda.synchronize()
    found["state_back"] = all(torch.equal(one, other) for one, other in zip(step.state(), kept, strict=True))
    found["moved_by_replays"] = moved(step, captured.replay, COMPARED)
    captured.restore()
    found["moved_by_calls"] = moved(step, step, COMPARED)
    return found


def silent(name, results):
    """What was said of it, and how wrong it is."""
    import kernel_dvfs
    from kernel_dvfs_clocks.errors import InputError

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
    from kernel_dvfs_clocks.errors import InputError
    from kernel_dvfs_step import capturing

    try:
        # bugs run beside each other
        capturing.capture(f"{HERE}:{name}", results_dir=results, say=lambda line: None, share=True)
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
    lines = [line for line in errors.splitlines() if not re.match(r"\d+\.\d s: ", line)]
    found |= {"stderr_lines": len(lines), "asserts": sum("ssertion" in line for line in lines)}
    return found | {"total_s": round(time.perf_counter() - begin_s, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CASES), metavar="CASE", help=f"of: {', '.join(CASES)}")
    parser.add_argument("--limit-s", type=float, default=460.0, help="of all cases (default: 460)")
    parser.add_argument("--results", default="results", help="the folder with the native layer (default: results)")
    parser.add_argument("--one", choices=list(CASES), metavar="CASE", help=argparse.SUPPRESS)
    parser.add_argument("--output", default="any_step.jsonl", metavar="FILE", help="within $OUT; lines are added")
    parser.add_argument(
        "--table", nargs="+", metavar="FILE", help="write OUT.csv of these files of JSON lines, and run nothing"
    )
    parser.add_argument("--meter", metavar="UUID", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        write_table(options.table[1:], options.table[0])
        return
    if options.meter:
        meter(options.meter)
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
    with (Path(os.environ.get("OUT", ".")) / options.output).open("a", encoding="utf-8") as file:

        def tell(name, found):
            kind = "step" if name in STEPS else "silent" if name in SILENT else "bug"
            line = json.dumps({"case": name, "kind": kind} | found)
            print(line[:1500], flush=True)
            print(line, file=file, flush=True)

        def left_s():
            return options.limit_s - (time.perf_counter() - begin_s)

        names = options.only or [*BUGS, *SILENT, *STEPS]
        quick = [name for name in names if name not in STEPS]
        with ThreadPoolExecutor(6) as pool:
            for name, found in zip(quick, pool.map(lambda name: run(name, options.results, CASE_LIMIT_S), quick)):
                tell(name, found)
        for name in (name for name in names if name in STEPS):
            needs = MODELS[name.rsplit("_", 3)[0]][1]
            if not find_spec(needs):
                tell(name, {"skipped": f"the library {needs} is not installed"})
            elif left_s() < LEAST_S:
                tell(name, {"skipped": "no time left"})
            else:
                tell(name, run(name, options.results, min(CASE_LIMIT_S, left_s())))


def write_table(paths, out):
    """A row a case of JSON lines, the last one that said something: what the results folder keeps."""
    cases = {}
    for path in paths:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            if found["case"] not in cases or "skipped" not in found:
                cases[found["case"]] = found
    with open(out, "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        for found in cases.values():
            shown = {key: f"{value:.5g}" if isinstance(value, float) else value for key, value in found.items()}
            shown["said"] = found.get("skipped") or found.get("failed") or found.get("lost") or found.get("said") or ""
            shown["said"] = str(shown["said"]).replace(str(HERE.parent) + "/", "")
            table.writerow(shown)


if __name__ == "__main__":
    main()
