"""The systems compared, by the knobs that each may turn, and the settings that all of them share.

Definitions of the baselines are ours where sources are silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernel_dvfs_clocks.errors import InputError


@dataclass(frozen=True, slots=True)
class System:
    """Which knobs a system may turn."""

    name: str
    pooled: bool  # by class; else one pool of the largest configuration, without an emergency ladder
    scale_instances: bool  # servers per pool (cluster manager)
    scale_sharding: bool  # degrees within a pool (pool manager)
    scale_clock: bool  # clock of an instance (instance manager)


SYSTEMS = {
    system.name: system
    for system in (
        System("SinglePool", False, False, False, False),
        System("MultiPool", True, False, False, False),
        System("ScaleInst", True, True, False, False),
        System("ScaleShard", True, False, True, False),
        System("ScaleFreq", True, False, False, True),
        System("DynamoLLM", True, True, True, True),
    )
}
# the trace that is shipped: made by kernel-dvfs serving trace --hours 1 --rate 3 --seed 1
SYNTHETIC_HOUR = Path(__file__).parent / "traces" / "synthetic_hour.csv"
BASELINE = "SinglePool"
STATIC = "MultiPool"
# the cheapest servers, degree, clock and step that, held fixed, keep the promise with its margins, by the router that
# people run: what all savings are compared with
TUNED = "tuned static plan"
LEAST_REQUESTS = "static, least requests"
CAPPED = "static, power cap"
# the routers that are simulated (static.py)
LEAST, EARLIEST = "least requests", "earliest first token"
ROUTERS = (LEAST, EARLIEST)
# of a plan with one server
NO_SPARE = "one server has no spare: while it is lost, the promise is broken"
HINDSIGHT = "DynamoLLM, hindsight"  # its loads known before they come
# who can be the answer: without hindsight
ABLE = (*SYSTEMS, TUNED, LEAST_REQUESTS, CAPPED)
FIXED = (TUNED, LEAST_REQUESTS, CAPPED)
# whose power is kept over time
OVER_TIME = (BASELINE, TUNED, LEAST_REQUESTS, "DynamoLLM")
# which knob turns alone -> system
ALONE = {"instances": "ScaleInst", "degrees": "ScaleShard", "clocks": "ScaleFreq"}
# published names of loads, and what they are taken for: prompt and answer tokens/s per server
LOADS_TPS = {"low": 650, "medium": 2000, "high": 4000}

# of an instance, where nothing else is asked for
REQUESTS = 500  # simulated per load
MAX_BATCH = 256  # sequences at once
CHUNK_TOKENS = 512  # tokens of one step, where no plan says
STEP_TOKENS = (512, 2048, 8192)  # that a plan chooses among
SLOWER = 1.2  # as the profile's steps may be slower than it says: a promise is kept with that, too
MAX_TOKENS = 16_384  # of a simulated one, at most
# the host's time between two steps, in which the GPUs wait: fitted with steps.SEQUENCE_S to three published rows of
# Llama 3.1 8B on vLLM 0.11 (experiments/calibration/serving_host.py); of an engine of 2023: about 0.018
HOST_S = 0.0006

# a misprediction of this name: answers are predicted from the prompt's length alone
TOKEN_COUNT = "token-count"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What a cluster is told besides the trace, the system and the profile: epochs, overheads, limits."""

    servers: int = 12  # of 8 GPUs
    spare: int = 0  # of them, without which plans keep the promise, so that so many may be lost
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
    promise_percent: float = 99.0  # of requests whose promises a system must keep
    gaps: str = "mean"  # one of CHOICES: what of a request's gaps between tokens is promised, their mean or P99
    emergencies: bool = True  # whether queues that grow climb the emergency ladder
    queue_share: float = 0.5  # of its time to the first token that a queued request may use before it is an emergency
    queue_patience_s: float = 1.0  # between two steps of the ladder
    clock_hold_s: float = 5.0  # that the highest clock stays after an emergency
    bin_s: float = 10.0  # of energy over time
    seed: int = 1


SETTINGS = asdict(ClusterSettings())
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
CHOICES = {"load_prediction": ("template", "oracle"), "gaps": ("mean", "p99")}
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


def settings(where: str, given: Mapping[str, Any]) -> ClusterSettings:
    """Return the settings given, the others as by default. Raises InputError, which begins with `where`."""
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
    return ClusterSettings(**given)
