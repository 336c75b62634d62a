"""transformers' Trainer trains a Llama under torchrun: trainer_llama.py ROWS.

ROWS: one JSON line when the training begins, and one for each of its log's rows, with their wall time.
"""

import json
import os
import sys
import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from kernel_dvfs_hooks.trainer import EnergyCallback

ROWS = sys.argv[1]
BATCH, WORDS = 8, 2048
IS_GPU = torch.cuda.is_available()
# without GPUs small enough to be tried beside fake boards
STEPS, WIDTH, LAYERS, TOKENS = (175, 2048, 8, 2048) if IS_GPU else (75, 64, 1, 16)


class Tokens(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return STEPS * BATCH * int(os.environ["WORLD_SIZE"])

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        drawn = torch.randint(0, WORDS, (TOKENS,), generator=torch.Generator().manual_seed(place))
        return {"input_ids": drawn, "labels": drawn, "attention_mask": torch.ones_like(drawn)}


class Rows(TrainerCallback):
    """After the hook, so that it sees what that adds."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.on_log(args, state, control, {})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if state.is_world_process_zero:
            with open(ROWS, "a") as file:
                file.write(json.dumps({"time_s": time.time(), "step": state.global_step} | logs) + "\n")


model = LlamaForCausalLM(
    LlamaConfig(
        **{"hidden_size": WIDTH, "intermediate_size": 11 * WIDTH // 4, "num_hidden_layers": LAYERS},
        **{
            "num_attention_heads": max(2, WIDTH // 128),
            "num_key_value_heads": max(2, WIDTH // 128),
            "vocab_size": WORDS,
        },
    )
)
arguments = TrainingArguments(
    *("out",),
    **{"max_steps": STEPS, "per_device_train_batch_size": BATCH, "logging_steps": 25, "report_to": "none"},
    **{"save_strategy": "no", "disable_tqdm": True, "include_num_input_tokens_seen": "all"},
    **{"bf16": IS_GPU, "use_cpu": not IS_GPU, "optim": "adamw_torch_fused"},
    dataloader_num_workers=2,
)
# torch tells which GPU is a rank's; beside fake boards nothing does
hook = EnergyCallback("" if IS_GPU else os.environ["RANK"])
Trainer(model, arguments, train_dataset=Tokens(), callbacks=[hook, Rows()]).train()
