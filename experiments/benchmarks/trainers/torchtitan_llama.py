"""A Llama with our metrics, and data made on the spot, for torchtitan 0.2: what it imports as a custom module.

python -m torchtitan.train --experimental.custom_import torchtitan_llama --model.name llama3_energy
"""

import json
import random
from dataclasses import replace
from pathlib import Path

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torchtitan.hf_datasets import DatasetConfig
from torchtitan.hf_datasets.text_datasets import DATASETS
from torchtitan.models.llama3 import TransformerModelArgs, get_train_spec
from torchtitan.protocols.train_spec import register_train_spec

from kernel_dvfs_hooks.torchtitan import EnergyMetrics

WORDS = [f"w{number}" for number in range(2000)]


def save_tokenizer(folder: Path) -> None:
    """Write a tokenizer of these words to a folder, as Hugging Face lays its files."""
    folder.mkdir(parents=True)
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    words = {word: place for place, word in enumerate([*special.values(), *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(special.values()))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(special))


def texts(_: str) -> Dataset:
    """Return texts of these words, from a fixed seed."""
    draw = random.Random(57)
    return Dataset.from_dict({"text": [" ".join(draw.choices(WORDS, k=2000)) for _ in range(400)]})


DATASETS["made"] = DatasetConfig(path="", loader=texts, sample_processor=lambda sample: sample["text"])
flavours = {"small": TransformerModelArgs(dim=2048, n_layers=8, n_heads=16, vocab_size=2048, rope_theta=500000)}
spec = replace(get_train_spec(), model_args=flavours, build_metrics_processor_fn=EnergyMetrics)
register_train_spec("llama3_energy", spec)
