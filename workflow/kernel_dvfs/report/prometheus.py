"""A finished study as Prometheus text: what node_exporter's textfile collector reads.

Format: https://prometheus.io/docs/instrumenting/exposition_formats (text format 0.0.4). Units are the base units that
its naming rules ask for: ratios, hertz.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernel_dvfs.layout import STRICT
from kernel_dvfs.report.page.answer import Answer, Change
from kernel_dvfs.report.results import Results

_CHANGE = "of an iteration by the strict schedule against auto clocks, as a ratio; negative = saved"
_HELP = {
    "kernel_dvfs_energy_change_ratio": f"Change of energy {_CHANGE}.",
    "kernel_dvfs_time_change_ratio": f"Change of time {_CHANGE}.",
    "kernel_dvfs_kernel_core_clock_hertz": "Core clock chosen for a kernel; kernels left at auto are absent.",
    "kernel_dvfs_kernel_memory_clock_hertz": "Memory clock chosen for a kernel; kernels left at auto are absent.",
}
_CLOCKS = {"core_mhz": "kernel_dvfs_kernel_core_clock_hertz", "mem_mhz": "kernel_dvfs_kernel_memory_clock_hertz"}


def text(results: Results, answer: Answer) -> str:
    """The metrics of a study; answer: of its strict schedule. Raises InputError where that is missing."""
    about = {
        "gpu": results.subject,
        "workload": results.workload["name"],
        "is_simulated": str(results.gpu["kind"] == "simulated").lower(),
    }
    samples: dict[str, list[str]] = {name: [] for name in _HELP}
    for name, change in zip(_HELP, (answer.energy, answer.time)):
        values = _values(change, answer.how)
        samples[name] += [_sample(name, about | labels, percent / 100) for labels, percent in values]
    for kernel, clocks in results.schedule(STRICT)["targets"].items():
        for column, name in _CLOCKS.items():
            if clocks[column] != "auto":
                samples[name].append(_sample(name, about | {"kernel": kernel}, 1e6 * clocks[column]))
    return "".join(
        f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n{''.join(own)}" for name, own in samples.items() if own
    )


def _values(change: Change, how: str) -> Iterator[tuple[dict[str, str], float]]:
    """(labels, percent): claimed, and measured again with its 95 % interval, called `how` in one word."""
    again = {"mean": change.validated, "low": change.low, "high": change.high}
    for name, values in (("claimed", {"mean": change.claimed}), (how, again)):
        for bound, percent in values.items():
            if percent is not None:
                yield {"how": name.replace(" ", "_"), "bound": bound}, percent


def _sample(name: str, labels: Mapping[str, Any], value: float) -> str:
    pairs = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
    return f"{name}{{{pairs}}} {value!r}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
