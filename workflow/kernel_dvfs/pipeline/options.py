"""What a study is told, by the keys of its study.json; light, because planning a workflow asks for them too."""

# beside schema, name, subject and source
KEYS = (
    "stages",
    "schedule",
    "chunks",
    "early_recompute",
    "transfer_s",
    "constant",
    "microbatches",
    "total_microbatches",
    "tensor_parallel",
    "blocking_w",
    "straggler",
    "unit_time_s",
    "kernels",
    "switch_latency_s",
)
