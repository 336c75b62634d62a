"""The systems compared, by the knobs that each may turn, and the settings that all of them share.

Definitions of the baselines are ours where sources are silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kernel_dvfs.errors import InputError


@dataclass(frozen=True, slots=True)
class System:
    """Which knobs a system may turn."""

    name: str
    pooled: bool  # by class; else one pool of the largest configuration, without an emergency ladder
    scale_instances: bool  # servers per pool (cluster manager)
    scale_sharding: bool  # degrees within a pool (pool manager)
    scale_clock: bool  # clock of an instance (instance manager)


SYSTEMS = {
    each.name: each
    for each in (
        System("SinglePool", False, False, False, False),
        System("MultiPool", True, False, False, False),
        System("ScaleInst", True, True, False, False),
        System("ScaleShard", True, False, True, False),
        System("ScaleFreq", True, False, False, True),
        System("instances + degrees", True, True, True, False),
        System("instances + clocks", True, True, False, True),
        System("degrees + clocks", True, False, True, True),
        System("DynamoLLM", True, True, True, True),
    )
}
BASELINE = "SinglePool"
STATIC = "MultiPool"
# the cheapest servers, degree and clock that, held fixed, keep the promise: what all savings are compared with
TUNED = "tuned static plan"
PACKED = "packing"
# of a plan with one server
NO_SPARE = "one server has no spare: while it is lost, the promise is broken"
AUTOSCALED = "autoscaler"
PUBLISHED = "DynamoLLM, as published"
HINDSIGHT = "DynamoLLM, hindsight"  # its loads known before they come
# who can be the answer: without hindsight
ABLE = (*SYSTEMS, PUBLISHED, AUTOSCALED, TUNED, PACKED)
# whose power is kept over time
OVER_TIME = (BASELINE, TUNED, PACKED, "DynamoLLM")
# published names of loads, and what they are taken for: prompt and answer tokens/s per server
LOADS_TPS = {"low": 650, "medium": 2000, "high": 4000}
# which knobs turn -> system: all subsets
SUBSETS = {
    (): "MultiPool",
    ("instances",): "ScaleInst",
    ("degrees",): "ScaleShard",
    ("clocks",): "ScaleFreq",
    ("instances", "degrees"): "instances + degrees",
    ("instances", "clocks"): "instances + clocks",
    ("degrees", "clocks"): "degrees + clocks",
    ("instances", "degrees", "clocks"): "DynamoLLM",
}

# of an instance, where nothing else is asked for
REQUESTS = 500  # simulated per load
MAX_BATCH = 256  # sequences at once
CHUNK_TOKENS = 512  # tokens of one step
MAX_TOKENS = 16_384  # of a simulated one, at most
# the host's scheduling between two steps, in which the GPUs wait, of engines of 2025 (assumed; of 2023: about 0.018)
HOST_S = 0.002

# a misprediction of this name: answers are predicted from the prompt's length alone
TOKEN_COUNT = "token-count"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a cluster is told besides the trace, the system and the profile: epochs, overheads, limits."""

    servers: int = 12  # of 8 GPUs
    spare: int = 0  # of them, without which plans and packing keep the promise, so that so many may be lost
    pools: int = 4  # of the pooled systems
    cluster_epoch_s: float = 1800.0
    pool_epoch_s: float = 300.0
    clock_epoch_s: float = 5.0
    start_s: float = 420.0  # of a server, drawing idle power
    reshard_unit_s: float = 0.058  # 140 GB / 8 over 300 GB/s
    reshard_gap_s: float = 1.0
    reload_s: float = 33.0  # weights onto GPUs that hold none, and the engine's configuration
    clock_latency_s: float = 0.065
    kv_gb_per_s: float = 300.0
    max_batch: int = MAX_BATCH
    chunk_tokens: int = CHUNK_TOKENS
    margin: float = 1.1  # on forecast loads
    clock_margin: float = 1.1  # on the load of the last clock epoch
    load_slot_s: float = 15.0  # over which loads are averaged; the highest slot is the peak
    load_prediction: str = "template"  # one of CHOICES
    misprediction: float | str = 0.0  # share of answers whose class is mispredicted, or TOKEN_COUNT
    priced_at: str = "run"  # one of CHOICES: servers and degrees as they run, or at the top clock (published)
    promise_percent: float = 99.0  # of requests whose promises a system must keep
    gaps: str = "mean"  # one of CHOICES: what of a request's gaps between tokens is promised, their mean or P99
    preempts: bool = False  # whether KV caches grow with the answers, and the latest request is pre-empted where full
    react: bool = True  # whether anything but the emergency ladder happens between epochs
    reserve_step: float = 0.1  # of an instance's capacity: what one broken promise adds to the room that clocks leave
    emergencies: bool = True  # whether queues that grow climb the emergency ladder
    queue_share: float = 0.5  # of its time to the first token that a queued request may use before it is an emergency
    queue_patience_s: float = 1.0  # between two steps of the ladder
    clock_hold_s: float = 5.0  # that the highest clock stays after an emergency
    bin_s: float = 10.0  # of energy over time
    seed: int = 1


SETTINGS = asdict(Settings())
# a serving study where nothing else is configured; `serving` of the shipped configuration says the same
DEFAULTS: dict[str, Any] = SETTINGS | {
    "profile": None,
    "gpu": "h100_sxm",
    "model": "llama2-70b",
    "degrees": [2, 4, 8],
    "core_mhz": [800, 1200, 1600, 1980],
    "requests": REQUESTS,
    "host_s": HOST_S,
    "trace": None,
    "trace_sha256": None,
    "trace_times": None,
    "slo_scale": 1.0,
    "usd_per_server_hour": 88.5,
    "usd_per_kwh": 0.0806,
    "co2_g_per_kwh": 226,
}
# what settings in words may be
CHOICES = {"priced_at": ("run", "top"), "load_prediction": ("template", "oracle"), "gaps": ("mean", "p99")}
# what settings in numbers may be, from and to
_WEEK_S = 604_800
LIMITS: dict[str, tuple[float, float]] = {
    "servers": (1, 128),  # in one pool their divisions take 1.2 GB, and eight times as much for twice as many
    "spare": (0, 127),
    "pools": (1, 9),
    **dict.fromkeys(("cluster_epoch_s", "pool_epoch_s", "clock_epoch_s", "load_slot_s"), (0.1, _WEEK_S)),
    **dict.fromkeys(("bin_s", "queue_patience_s"), (0.1, _WEEK_S)),
    **dict.fromkeys(("start_s", "reshard_unit_s", "reshard_gap_s", "reload_s", "clock_latency_s"), (0, 3600)),
    "clock_hold_s": (0, 3600),
    **dict.fromkeys(("kv_gb_per_s", "margin", "clock_margin"), (1e-6, 1e6)),
    "max_batch": (1, 65_536),
    "chunk_tokens": (2, 1_000_000),
    "misprediction": (0, 1),
    "promise_percent": (0, 100),
    "reserve_step": (0, 1),
    "queue_share": (0, 1),
    "seed": (0, 2**53),
}


def check_spare(servers: int, spare: int) -> None:
    """Raise InputError where no server is left without the spare."""
    if spare >= servers:
        raise InputError(f"spare = {spare} is not possible; allowed: fewer than the servers ({servers})")


def check_step(max_batch: int = MAX_BATCH, chunk_tokens: int = CHUNK_TOKENS) -> None:
    """Raise InputError where a simulated step does not hold the batch and some of a prompt, or more than it may."""
    if not max_batch < chunk_tokens <= MAX_TOKENS:
        raise InputError(
            f"chunk_tokens = {chunk_tokens} is not possible; allowed: above max_batch ({max_batch}), up to {MAX_TOKENS}"
        )


def settings(where: str, given: Mapping[str, Any]) -> Settings:
    """The settings that are given, the others as they are by default. Raises InputError, which begins with `where`."""
    for key, value in given.items():
        if key not in SETTINGS:
            raise InputError(f"{where}: no setting '{key}'; allowed: {', '.join(SETTINGS)}")
        usual = SETTINGS[key]
        if isinstance(usual, bool):
            good, allowed = isinstance(value, bool), "true or false"
        elif key in CHOICES:
            good, allowed = value in CHOICES[key], ", ".join(CHOICES[key])
        else:
            (least, most), whole = LIMITS[key], isinstance(usual, int)
            good = type(value) in ((int,) if whole else (int, float)) and least <= value <= most
            allowed = f"a {'whole ' if whole else ''}number from {least:g} to {most:g}"
            if key == "misprediction":
                good, allowed = good or value == TOKEN_COUNT, f"{allowed}, or {TOKEN_COUNT}"
        if not good:
            raise InputError(f"{where}: {key} = {str(value)[:40]!r} is not possible; allowed: {allowed}")
    return Settings(**given)
