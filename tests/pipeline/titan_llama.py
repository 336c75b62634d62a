"""torchtitan's Llama 3, split by torchtitan, in followed stages on the CPU. No test: torchrun runs it.

As a `pipelining_fn` of torchtitan does it: its pipeline_module_split makes the stages, follow.of takes them. Written
for torchtitan 0.2; in 0.3 that function is private, and attention no longer trains on a CPU.
"""

import os

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import Schedule1F1B, ScheduleInterleaved1F1B
from torch.nn import functional
from torchtitan.distributed.pipeline_parallel import generate_llm_fqn_per_model_part, pipeline_module_split
from torchtitan.models.llama3 import llama3_args
from torchtitan.models.llama3.model.model import Transformer

MICROBATCHES, BATCH, LONG = 4, 1, 32


def training(follow):
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    name = os.environ.get("TITAN_SCHEDULE", "1F1B")
    chunks = 1 if name == "1F1B" else 2
    torch.set_num_threads(1)
    torch.manual_seed(3)
    args, device = llama3_args["debugmodel"], torch.device("cpu")
    model = Transformer(args)
    with torch.no_grad():
        model.init_weights()
    names = generate_llm_fqn_per_model_part(chunks * ranks, args.n_layers, 1, 1)
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("pp",))
    made, parts = pipeline_module_split(model, mesh, name, device, names)
    stages = [follow.of(stage) for stage in made]
    loss = follow.loss(lambda output, target: functional.cross_entropy(output.flatten(0, 1), target.flatten()))
    if chunks == 1:
        schedule = Schedule1F1B(stages[0], n_microbatches=MICROBATCHES, loss_fn=loss)
    else:
        schedule = ScheduleInterleaved1F1B(stages, n_microbatches=MICROBATCHES, loss_fn=loss)
    optimizer = torch.optim.AdamW([own for part in parts for own in part.parameters()], lr=1e-3)
    words = torch.randint(args.vocab_size, (MICROBATCHES * BATCH, LONG))

    def iteration():
        losses = []
        named = {"target": words, "losses": losses} if rank == ranks - 1 else {}
        schedule.step(*([words] if rank == 0 else []), **named)
        optimizer.step()
        optimizer.zero_grad()
        if losses:
            print(f"loss {sum(own.item() for own in losses) / len(losses):.4f}", flush=True)

    return iteration
