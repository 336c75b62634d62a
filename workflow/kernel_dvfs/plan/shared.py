"""What studies of every kind of GPU have in common: their schedules, sizes, setups and protocol."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_dvfs.errors import InputError
from kernel_dvfs.measurement import setup
from kernel_dvfs.plan.asked import PlannedFile, decimals
from kernel_dvfs.plan.step import StepSource
from kernel_dvfs.workload.models import model, tensor_parallel_degrees
from kernel_dvfs.workload.workload import Workload, name_of_model

_PROTOCOL = ("window_s", "windows", "seed")
# beside it on a real GPU
_REAL_PROTOCOL = (
    *("clocks", "lock", "after", "share", "temperature", "band_c", "max_windows", "energy_ci_percent"),
    *("gemm_algorithm", "skip_capped"),
)
_WARMUP_S = {"simulated": 25, "nvml": 2}
# the degrees of the paper's study, where the model allows them
_DEGREES = (1, 2, 4, 8, 16)
_DEFAULT_WEIGHTS = {"simulated": "counts", "nvml": "counts", "table": "raw"}


def schedule_names(granularities: list, slack_percent: float, weights: str = "") -> list:
    """The schedules that Table 2 compares: granularity x scope x objective; strict waste always, relaxed if asked for.

    weights: the end of each name, `-equal-time`, or nothing for the default. Raises InputError for a slack that a
    file's name cannot say.
    """
    slack = decimals(slack_percent)
    if float(slack) != slack_percent:
        raise InputError(f"config: slack_percent = {slack_percent!r} is not possible; allowed: at most six decimals")
    slacks = ["0"] if slack == "0" else ["0", slack]
    objectives = [f"waste-slack{slack}" for slack in slacks] + ["edp", "energy"]
    return [
        f"{granularity}-{scope}-{objective}{weights}"
        for granularity in granularities
        for scope in ("single", "local", "global")
        for objective in objectives
    ]


def weights_of(config: dict, kind: str) -> str:
    weights = config["weights"]
    return "" if weights in (None, _DEFAULT_WEIGHTS[kind]) else f"-{weights}"


def granularities_of(workload: Workload) -> list[str]:
    """What clocks are chosen for."""
    return ["pass", "kernel"] if workload.has_passes else ["kernel"]


def workload_folder(step: StepSource | None, config: dict) -> str:
    return step.name if step else name_of_model(config)


def setup_file(folder: str, gpu: dict, workload: Workload, protocol: dict) -> PlannedFile:
    digest, text = setup.content(gpu, workload.about, workload.targets, protocol)
    return PlannedFile(f"{folder}/setup/{digest}.json", text)


def other_sizes(config: dict, batches: list, degrees: list) -> Iterator:
    """The same workload at other batches and degrees: (name, study, value, changed options)."""
    for study, key, values in (
        ("batch", "batch", batches),
        ("tp", "tensor_parallel", degrees),
    ):
        for value in values:
            if value != config[key]:
                yield f"{study}-{value}", study, value, {key: value}


def protocol(config: dict, kind: str) -> dict:
    """How a setup measures."""
    keys = (*_PROTOCOL, *_REAL_PROTOCOL) if kind == "nvml" else _PROTOCOL
    # the way that clocks are set is named only where it is configured: it may differ from machine to machine, and what
    # was measured stays what it is
    named = {"through": config["through"]} if kind == "nvml" and config["through"] != "auto" else {}
    return {"warmup_s": warmup_s(config, kind)} | {key: config[key] for key in keys} | named


def warmup_s(config: dict, kind: str) -> float:
    """Warm-up of a kernel at its clocks, s, on a kind of GPU."""
    return config["warmup_s"] if config["warmup_s"] is not None else _WARMUP_S.get(kind, 0)


def degrees_of(config: dict) -> list:
    """The tensor-parallel degrees of the study; null in the configuration: the paper's, where the model allows them."""
    possible = tensor_parallel_degrees(model(config["model"]))
    degrees = config["tensor_parallel_degrees"]
    if degrees is None:
        return [degree for degree in _DEGREES if degree in possible]
    for degree in degrees:
        if degree not in possible:
            raise InputError(
                f"tensor_parallel_degrees = {degree} is not possible for {config['model']}; "
                f"allowed: {', '.join(map(str, possible))}"
            )
    return degrees
