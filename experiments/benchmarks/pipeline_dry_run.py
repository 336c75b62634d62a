"""A pipeline measured and a plan followed on real GPUs, nothing set: pipeline measure, a plan, pipeline run.

    python experiments/benchmarks/pipeline_dry_run.py OUT [--runs 2x1 2x2 1x2]

A run is ranks x stages of a rank: one stage by 1F1B, more by an interleaved schedule. Where each rank has a GPU of its
own, activations are handed on by NCCL and operations are followed by events on the CUDA stream; ranks that share a GPU
hand them on through the host (gloo) and are followed by its clock. What is measured is the operations at default
clocks, what a waiting GPU draws, and what following a plan costs: no clock is set, so the plan's changes are noted at
their moments and the certificate's blocks differ by the executor alone. At other clocks times and energies, and how
long changes take, are ASSUMED (`assume`), to have a plan that changes clocks. Run it behind an NVML that refuses to set
anything. Writes certificates, stages and dry_run.txt to OUT.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pynvml

WIDE, LONG, BATCH, LAYERS, MICROBATCHES = 2048, 1024, 4, 6, 8
# assumed: share of the time that goes with the core clock, clocks, and the power that goes with its cube
_SHARE, _CLOCKS, _CUBE = 0.6, (1980, 1740, 1500, 1290, 1080), 0.5
_LATENCY_S = (0.004, 0.005, 0.006, 0.008)
_STAGES = "STAGES_OF_A_RANK"


def training(follow):
    """GPT blocks in bfloat16, for kernel-dvfs pipeline measure and run."""
    import torch
    from torch.distributed.pipelining import Schedule1F1B, ScheduleInterleaved1F1B
    from torch.nn import functional

    rank, ranks, own_stages = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", _STAGES))
    torch.manual_seed(rank)
    by_host = ranks > torch.cuda.device_count()
    gpu = torch.device("cuda", 0 if by_host else rank)

    class Part(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layers = [
                torch.nn.TransformerEncoderLayer(WIDE, 16, 4 * WIDE, dropout=0.0, batch_first=True, norm_first=True)
                for _ in range(LAYERS)
            ]
            self.layers = torch.nn.Sequential(*layers).to(gpu, torch.bfloat16)

        def forward(self, x):
            found = self.layers(x.to(gpu))
            return found.cpu() if by_host else found

    device = torch.device("cpu") if by_host else gpu
    parts = [Part() for _ in range(own_stages)]
    stages = [follow.stage(part, rank + at * ranks, ranks * own_stages, device) for at, part in enumerate(parts)]
    loss = follow.loss(lambda output, target: functional.mse_loss(output.float(), target.float()))
    if own_stages == 1:
        schedule = Schedule1F1B(stages[0], MICROBATCHES, loss_fn=loss)
    else:
        schedule = ScheduleInterleaved1F1B(stages, MICROBATCHES, loss_fn=loss)
    x = torch.randn(MICROBATCHES * BATCH, LONG, WIDE, dtype=torch.bfloat16, device=device)
    optimizer = torch.optim.SGD([own for part in parts for own in part.parameters()], lr=1e-4)

    def iteration():
        named = {"target": x} if rank == ranks - 1 else {}
        schedule.step(*([x] if rank == 0 else []), **named)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()

    return iteration


def assume(measured: Path, made: Path) -> None:
    """A folder as of pipeline measure at several clocks, of one at auto: times and energies, and latencies, assumed."""
    from kernel_dvfs.measurement.latency_file import content

    made.mkdir(exist_ok=True)
    with open(measured / "stages.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with open(made / "stages.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        for row in rows:
            for core_mhz in _CLOCKS if row["instruction"] != "waiting" else ():
                ratio = _CLOCKS[0] / core_mhz
                stretch = 1 - _SHARE + _SHARE * ratio
                time_s, power_w = float(row["time_s"]), float(row["energy_j"]) / float(row["time_s"])
                own_w = power_w * (1 - _CUBE + _CUBE / ratio**3)
                new = {"core_mhz": core_mhz, "time_s": time_s * stretch, "energy_j": own_w * time_s * stretch}
                writer.writerow(row | new)
            if row["instruction"] == "waiting":
                writer.writerow(row)
    (made / "graph.json").write_text((measured / "graph.json").read_text())
    trials = [
        {
            "domain": "core",
            "from_mhz": _CLOCKS[0],
            "to_mhz": _CLOCKS[1],
            "verdict": "ok",
            "call_s": 0.001,
            "first_effect_s": None,
            "settled_s": each,
            "nvml_s": each,
            "stall_s": 0.0,
        }
        for each in _LATENCY_S
    ]
    gpu = {"name": "assumed, not measured", "uuid": "GPU-00000000", "driver": "none"}
    about = {"gpu": gpu, "started_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    (made / "latency.json").write_text(json.dumps(content(about, trials)))


def plan_of(folder: Path, path: str) -> None:
    """A plan in which clocks change with every operation: forward passes one clock slower. Needs no solver."""
    from kernel_dvfs_clocks.files import write_sealed
    from kernel_dvfs_pipeline.curve import TICKS_PER_S, duration_ticks
    from kernel_dvfs_pipeline.graph import read_graph
    from kernel_dvfs_pipeline.spreads import spreads
    from kernel_dvfs_pipeline.stage_profile import read_stage_profile
    from kernel_dvfs_pipeline.study import PLAN_SCHEMA

    profile, graph = read_stage_profile(folder / "stages.csv"), read_graph(folder / "graph.json")
    rows = {
        key: sorted(range(len(own.core_mhz)), key=lambda at: -own.core_mhz[at])[key[1] == "forward"]
        for key, own in profile.settings.items()
    }
    keys = [(own.virtual_stage, own.instruction) for own in graph.operations]
    ticks = [int(duration_ticks(profile.of(*key).time_s[rows[key]])) for key in keys]
    finish = graph.finish_ticks(ticks)
    ranks = [{"stage": stage, "instructions": []} for stage in range(graph.stages)]
    for number in sorted(range(len(graph)), key=lambda at: finish[at]):
        own, (core_mhz, _) = graph.operations[number], profile.of(*keys[number]).clocks(rows[keys[number]])
        ranks[own.stage]["instructions"].append(
            {
                "instruction": own.instruction,
                "virtual_stage": own.virtual_stage,
                "microbatch": own.microbatch,
                "begin_s": (finish[number] - ticks[number]) / TICKS_PER_S,
                "end_s": finish[number] / TICKS_PER_S,
                "clocks": [{"core_mhz": core_mhz, "mem_mhz": None, "share_of_kernels": 1.0}],
            }
        )
    latency = spreads(str(folder / "latency.json")).document()
    time_s = max(finish) / TICKS_PER_S
    write_sealed(path, {"schema": PLAN_SCHEMA, "time_s": time_s, "ranks": ranks, "latency": latency})


def dry_run(out: Path, ranks: int, stages: int, boards: int, iterations: int, blocks: int) -> list[str]:
    """The three commands; lines of what came of them."""
    name = f"{ranks}_ranks_of_{stages}_stages"
    folder = out / name
    own = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "-m", "kernel_dvfs"]
    by_host = ranks > boards
    shared = ["--gpus", "0" if by_host else ",".join(str(number) for number in range(ranks)), "--dry-run"]
    script, plan = str(Path(__file__).resolve()), str(folder / "plan.json")
    environment = os.environ | {_STAGES: str(stages)}
    if by_host:  # these are timed by the host's clock, which must not run ahead of the GPU
        environment |= {"CUDA_LAUNCH_BLOCKING": "1"}
    began_s = time.monotonic()
    subprocess.run([*own, "pipeline", "measure", script, *shared, "-o", str(folder)], check=True, env=environment)
    measured_s = time.monotonic()
    assume(folder, folder / "assumed")
    plan_of(folder / "assumed", plan)
    planned_s = time.monotonic()
    count = ["--iterations", str(iterations), "--blocks", str(blocks), "--block-s", "1.2"]
    file = out / f"certificate_{name}.json"
    told = subprocess.run(
        [*own, "pipeline", "run", script, plan, *shared, *count, "-o", str(file)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ).stdout
    (out / f"stages_{name}.csv").write_text((folder / "stages.csv").read_text())
    certificate = json.loads(file.read_text())
    iteration_s = [block["time_s"] for block in certificate["blocks"][0]]
    where = "sharing a GPU, through the host" if by_host else "a GPU each, by NCCL" if ranks > 1 else "on a GPU"
    return [
        f"{ranks} rank(s) of {stages} stage(s) {where}: measure {measured_s - began_s:.0f} s, plan "
        f"{planned_s - measured_s:.0f} s, run {time.monotonic() - planned_s:.0f} s; iterations of rank 0's blocks, s: "
        + ", ".join(f"{block['mode']} {own:.4f}" for block, own in zip(certificate["blocks"][0], iteration_s)),
        told.strip(),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", metavar="OUT", type=Path)
    parser.add_argument("--runs", nargs="+", default=["2x1", "2x2", "1x2"], metavar="RANKSxSTAGES")
    parser.add_argument("--blocks", type=int, default=3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        parser.error("CUDA_VISIBLE_DEVICES numbers GPUs anew, and NVML does not: unset it")
    pynvml.nvmlInit()
    boards = pynvml.nvmlDeviceGetCount()
    name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    driver, day = pynvml.nvmlSystemGetDriverVersion(), time.strftime("%Y-%m-%d", time.gmtime())
    pynvml.nvmlShutdown()
    lines = [f"{day}, {boards} x {name}, driver {driver}, torch {version('torch')}; nothing was set"]
    for run in options.runs:
        ranks, stages = (int(number) for number in run.split("x"))
        lines += dry_run(options.out, ranks, stages, boards, 10, options.blocks)
        (options.out / "dry_run.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
