"""Everything a cluster is told beside the trace, the system and the profile: epochs, overheads, limits."""

from collections import namedtuple

DEFAULTS = {
    "servers": 8,
    "pools": 4,  # of the pooled systems
    "cluster_epoch_s": 1800.0,
    "pool_epoch_s": 300.0,
    "clock_epoch_s": 5.0,
    "start_s": 420.0,  # of a server, drawing idle power
    "reshard_unit_s": 0.058,  # 140 GB / 8 over 300 GB/s
    "reshard_gap_s": 1.0,
    "reload_s": 33.0,  # weights onto GPUs that hold none, and the engine's configuration
    "clock_latency_s": 0.065,
    "kv_gb_per_s": 300.0,
    "max_batch": 256,
    "chunk_tokens": 512,
    "margin": 1.1,  # on forecast loads
    "clock_margin": 1.1,  # on the load of the last clock epoch
    "load_slot_s": 300.0,
    "load_prediction": "template",
    "misprediction": 0.0,
    "emergencies": True,
    "sample_s": 60.0,
    "bin_s": 10.0,
    "seed": 1,
}
Settings = namedtuple("Settings", DEFAULTS)


def settings(**changed) -> Settings:
    """The defaults with some changed. TypeError for a name that there is not."""
    return Settings(**(DEFAULTS | changed))
