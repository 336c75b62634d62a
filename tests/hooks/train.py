"""A training with a real library on the CPU, beside a fake board: train.py LIBRARY STEPS [SHARE].

A step takes 2 ms, and 30 ms of which SHARE follows the core clock that the fake board runs, as work on it would. The
Trainer's ends where a file `end` appears. The log's rows, as JSON lines, go to the file log.jsonl.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

from kernel_dvfs_clocks.nvml.board import resolve
from kernel_dvfs_clocks.nvml.library import Library

LIBRARY, STEPS, SHARE = sys.argv[1], int(sys.argv[2]), float((*sys.argv[3:], 1.0)[0])
RANK = int(os.environ.get("RANK", "0"))
BOARD = os.environ.get("BOARD", "")
GPU = os.environ.get("GPU", BOARD)  # that the hook is to read
TOKENS = 7 * 8  # of a rank's step


class Model(torch.nn.Module):
    def __init__(self, board):
        super().__init__()
        self.layer, self._board, self._due = torch.nn.Linear(8, 1), board, 0.0

    def forward(self, x, labels=None):
        if self.training:
            self._due = max(self._due, time.monotonic() - 0.05)  # by the time that it is due, as in test_tune
            self._due += 0.002 + 0.030 * SHARE * 1980 / self._board.sm_mhz() + 0.030 * (1 - SHARE)
            time.sleep(max(0.0, self._due - time.monotonic()))
        loss = (self.layer(x).squeeze(-1) - labels).square().mean()
        return {"loss": loss}


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 7 * STEPS * int(os.environ.get("WORLD_SIZE", "1"))

    def __getitem__(self, place):
        return {"x": torch.full((8,), place % 5 / 5), "labels": torch.tensor(1.0)}


def write(row):
    if RANK == 0:
        with open("log.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")


def trainer(model):
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from kernel_dvfs_hooks.trainer import EnergyCallback

    class Ends(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = Path("end").exists()
            if "LOGS" in os.environ and state.global_step == 45:
                made.log({"train_loss": 1.37})

    arguments = TrainingArguments(
        *("out",),
        **{"max_steps": STEPS, "per_device_train_batch_size": 7, "logging_steps": 10, "report_to": "none"},
        **{"use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "eval_strategy": "steps", "eval_steps": 60},
        include_num_input_tokens_seen="COUNTS" in os.environ,
    )
    made = Trainer(
        model,
        arguments,
        train_dataset=Rows(),
        eval_dataset=torch.utils.data.Subset(Rows(), range(3)),
        callbacks=[EnergyCallback(GPU, TOKENS * int(os.environ.get("WORLD_SIZE", "1"))), Ends()],
    )
    if "LOGS" in os.environ:  # behind the Trainer's own, which take from the logs
        made.add_callback(made.pop_callback(EnergyCallback))
    made.train()
    for row in made.state.log_history:
        write(row)


def lightning(model):
    import lightning.pytorch as pl
    from lightning.pytorch.loggers.logger import DummyLogger

    from kernel_dvfs_hooks.lightning import EnergyCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, place):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    class Log(DummyLogger):
        def log_metrics(self, metrics, step=None):
            write(metrics | {"step": step})

    run = pl.Trainer(
        **{"max_steps": STEPS, "accelerator": "cpu", "log_every_n_steps": 10, "enable_progress_bar": False},
        **{"enable_checkpointing": False, "enable_model_summary": False, "accumulate_grad_batches": 2},
        **{"logger": Log(), "callbacks": [EnergyCallback(GPU, 2 * TOKENS)]},
    )
    run.fit(Module(), torch.utils.data.DataLoader(torch.utils.data.ConcatDataset([Rows(), Rows()]), batch_size=7))


def torchtitan(model):
    """torchtitan's trainer needs a CUDA device: its loop here is a plain one, its metrics are its own."""
    from types import SimpleNamespace

    from torchtitan.components import metrics

    device = SimpleNamespace(device_name="NVIDIA H200", reset_peak_stats=lambda: None)
    device.get_peak_stats = lambda: metrics.DeviceMemStats(*range(1, 7))
    metrics.build_device_memory_monitor = lambda: device  # no such device here

    from kernel_dvfs_hooks.torchtitan import EnergyMetrics

    class Log(metrics.BaseLogger):
        def log(self, told, step):
            write(told | {"step": step})

    torch.distributed.init_process_group("gloo", init_method="file://" + os.path.abspath("ranks"), rank=0, world_size=1)
    # a batch that two ranks share is counted by both
    ranks = SimpleNamespace(non_data_parallel_size=2, pp_enabled=False)
    is_asked_first = hasattr(metrics.MetricsProcessor, "Config")  # since 0.3
    if is_asked_first:
        processor = EnergyMetrics.Config(log_freq=10, gpu=GPU).build(parallel_dims=ranks)
    else:
        config = metrics.JobConfig()
        config.metrics.log_freq = 10
        processor = EnergyMetrics(config, ranks, gpu=GPU)
    processor.logger, processor.num_flops_per_token = Log(), 6
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    batches = torch.utils.data.DataLoader(Rows(), batch_size=7)
    for step, batch in enumerate(batches, start=1):
        if is_asked_first:
            logs = processor.should_log(step)
        processor.ntokens_since_last_log += TOKENS
        processor.data_loading_times.append(0.001)
        loss = model(**batch)["loss"]
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        if not is_asked_first:
            logs = processor.should_log(step)
        if logs:
            processor.log(step, loss.item(), loss.item(), 1.0, extra_metrics={"lr": 0.01})
    processor.close()


def megatron(model):
    """Megatron Core's schedules need CUDA: the loop here is a plain one, the count of microbatches its own."""
    from megatron.core import num_microbatches_calculator as microbatches
    from megatron.core import parallel_state

    from kernel_dvfs_hooks.megatron import energy_of

    microbatches.init_num_microbatches_calculator(0, None, 3 * 7, 7, 1)
    assert microbatches.get_num_microbatches() == 3
    stages, handed_on = int(os.environ.get("WORLD_SIZE", "1")), torch.zeros(3)
    if stages > 1:
        torch.distributed.init_process_group("gloo")
        parallel_state.initialize_model_parallel(pipeline_model_parallel_size=stages)
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    batches = iter(torch.utils.data.DataLoader(torch.utils.data.ConcatDataset([Rows()] * 4), batch_size=7))

    def forward_step(data_iterator, model):
        return model(**next(data_iterator))["loss"], lambda loss: loss

    forward = energy_of(forward_step, 10, 3 * TOKENS, GPU, log=lambda step, told: write(told | {"step": step}))
    for step in range(STEPS):
        model.train()
        for _ in range(3):
            if RANK:
                torch.distributed.recv(handed_on, RANK - 1)
            forward(batches, model)[0].backward()
            if stages > RANK + 1:
                torch.distributed.send(handed_on, RANK + 1)
        optimiser.step()
        optimiser.zero_grad()
        if step % 7 == 3:
            model.eval()
            forward(batches, model)  # an evaluation is no step
    write({"step": STEPS})


with Library() as nvml:
    globals()[LIBRARY](Model(resolve(nvml, BOARD)))
