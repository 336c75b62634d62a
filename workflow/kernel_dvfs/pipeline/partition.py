"""Layers of a transformer dealt out to pipeline stages, contiguous, so that the slowest stage is as fast as possible.

Knows no clocks and no kernels: times of one layer and of what the first and the last stage do beside.
"""

from kernel_dvfs.errors import InputError


def layers_per_stage(layers: int, stages: int, layer_s: float, first_s: float = 0.0, last_s: float = 0.0) -> list:
    """Layers of each stage, >= 1. layer_s: one layer; first_s, last_s: embedding, and logits with the loss.

    Layers are equal, so giving each to the stage that is least loaded with it makes the greatest load least.
    Raises InputError where there are fewer layers than stages.
    """
    if stages > layers:
        raise InputError(f"pipeline: {stages} stages for {layers} layers; allowed: 1 to {layers} stages")
    beside = [0.0] * stages
    beside[0] += first_s
    beside[-1] += last_s
    counts = [1] * stages
    for _ in range(layers - stages):
        # of equal loads the later stage: it holds fewer activations
        stage = min(range(stages), key=lambda at: (beside[at] + (counts[at] + 1) * layer_s, -at))
        counts[stage] += 1
    return counts
