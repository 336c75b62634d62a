"""How long a GPU takes to change its clocks, as `kernel-dvfs latency` measured it: the file, and what is used of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NotRequired, TypeAlias, TypedDict

from kernel_dvfs_clocks import shape
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.shape import Count, Is

if TYPE_CHECKING:
    from os import PathLike

SCHEMA = "kernel-dvfs/latency/1"
NVML = "nvml"  # the way of setting clocks that needs no mention
# quantities that a distribution is given of, s: call of the driver, request until first effect, settled, and shown by
# NVML, and how long a running kernel stood still
QUANTITIES = ("call_s", "first_effect_s", "settled_s", "nvml_s", "stall_s")
STATISTICS = ("n", "mean", "median", "p5", "p95", "max")
_DOMAINS: tuple[Literal["core", "mem"], ...] = ("core", "mem")
_REMEDY = "kernel-dvfs latency makes it"
_NORMAL = NormalDist()
_P99_BY_P95 = _NORMAL.inv_cdf(0.99) / _NORMAL.inv_cdf(0.95)
# where a number is from that nobody has measured
ASSUMED = "assumed"

_Line: TypeAlias = Annotated[str, Is("a text of one line", str.isprintable)]
_Seconds: TypeAlias = Annotated[float, Is("a number of seconds >= 0", lambda value: 0 <= value < 1e6)]


class Statistics(TypedDict):
    """Of a quantity over all changes that were seen to land; quantiles by linear interpolation."""

    n: Count
    mean: _Seconds
    median: _Seconds
    p5: _Seconds
    p95: _Seconds
    max: _Seconds


class _Domain(TypedDict):
    n: Count
    missed: Count
    settled_s: Statistics | None  # None: no change landed
    stall_s: Statistics | None


class _Domains(TypedDict):
    core: NotRequired[_Domain]
    mem: NotRequired[_Domain]


class _LatencyGpu(TypedDict):
    name: _Line
    uuid: _Line
    driver: _Line


class LatencyFile(TypedDict):
    """What is read of a file of `kernel-dvfs latency`; it holds every change besides."""

    schema: str
    gpu: _LatencyGpu
    started_utc: _Line
    through: NotRequired[_Line]
    is_dry_run: NotRequired[bool]
    domains: NotRequired[_Domains]  # of a dry run none


class Spread(NamedTuple):
    """How long a change of one clock takes from its request to its effect: log-normal, by two quantiles."""

    median_s: float
    p99_s: float

    def at(self, share: float) -> float:
        """Return the time that so many of all changes take at most, s."""
        return self.median_s * math.exp(
            math.log(self.p99_s / self.median_s) * _NORMAL.inv_cdf(share) / _NORMAL.inv_cdf(0.99)
        )


# How long a change takes where neither a file nor a simulated board's spec says: assumed, with a tail of late ones.
ASSUMED_LATENCIES = Spread(0.015, 0.1), Spread(0.03, 0.3)


@dataclass(frozen=True, slots=True)
class DomainLatency:
    """What a change of one clock takes, s, over all its starts and targets."""

    n: int  # changes that were seen
    missed: int  # that did not come to what was asked for
    settled_s: Statistics
    stall_s: Statistics


@dataclass(frozen=True, slots=True)
class Latency:
    """A file of `kernel-dvfs latency`."""

    path: str
    gpu_name: str
    about: str  # "measured on NVIDIA H200 (GPU-9fca33e6, driver 580.1, 2026-11-22)"
    domains: dict[str, DomainLatency]  # core, and mem where its clock can be locked

    @property
    def _slower(self) -> DomainLatency:
        return max(self.domains.values(), key=lambda domain: domain.settled_s["p95"])

    @property
    def latencies_s(self) -> list[float]:
        """Median and 95th percentile of the time until the clock has settled, of the slower domain; ascending."""
        slower = self._slower.settled_s
        return sorted({max(round(quantile_s, 6), 1e-6) for quantile_s in (slower["median"], slower["p95"])})

    def spread(self, domain: str) -> Spread | None:
        """Return the time until the clock has settled: log-normal through its median and its 95th percentile, since the
        last percent of few changes says little; None: not measured."""
        if domain not in self.domains:
            return None
        settled_s = self.domains[domain].settled_s
        # to a microsecond: files are named by it
        median_s = max(round(settled_s["median"], 6), 1e-6)
        return Spread(median_s, median_s * max(1.0, settled_s["p95"] / median_s) ** _P99_BY_P95)

    @property
    def latency_s(self) -> float:
        """The middle of what nine changes of ten take, of the slower domain."""
        slower = self._slower.settled_s
        return (slower["p5"] + slower["p95"]) / 2

    @property
    def jitter(self) -> float:
        """How early or late these land, as a share of `latency_s`."""
        slower = self._slower.settled_s
        return (slower["p95"] - slower["p5"]) / (slower["p95"] + slower["p5"])

    def stall_s(self, domain: str) -> float | None:
        """Return what a change of `domain` costs on average, since over many of them the mean adds up; None: not
        measured."""
        latency = self.domains.get(domain)
        return latency.stall_s["mean"] if latency else None


def latencies(
    measured: Latency | None, switching: dict[str, Any] | None, median_s: float | None = None
) -> tuple[tuple[Spread, Spread], str]:
    """Return (how long a change of the core and of the memory clock takes, where that is from).

    measured: comes first. switching: of a simulated GPU's spec, whose own comes next. median_s: of the core clock; both
    are scaled to it, which is a question, not a measurement.
    """
    spreads, source = ASSUMED_LATENCIES, ASSUMED
    if measured:
        core = measured.spread("core") or measured.spread("mem")
        mem = measured.spread("mem") or core
        assert core is not None and mem is not None, "a file has at least one of them"
        spreads, source = (core, mem), measured.about
    elif switching:
        known = (switching[domain] for domain in ("core", "mem"))
        core, mem = (Spread(quantiles["median_s"], quantiles["p99_s"]) for quantiles in known)
        spreads = core, mem
    if median_s is None or median_s == spreads[0].median_s:
        return spreads, source
    scale = median_s / spreads[0].median_s
    core, mem = (Spread(scale * spread.median_s, scale * spread.p99_s) for spread in spreads)
    return (core, mem), ASSUMED


def statistics(values: Sequence[float]) -> Statistics | None:
    """Return the statistics of at least one value; None for none."""
    if not values:
        return None
    ordered = sorted(values)

    def quantile(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = math.floor(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    return {
        "n": len(ordered),
        "mean": math.fsum(ordered) / len(ordered),
        "median": quantile(0.5),
        "p5": quantile(0.05),
        "p95": quantile(0.95),
        "max": ordered[-1],
    }


def content(about: dict[str, Any], trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the file holds. about: gpu, protocol and dates; trials: one a change, each with domain, from_mhz,
    to_mhz, verdict and QUANTITIES."""
    domains = {}
    for domain in dict.fromkeys(trial["domain"] for trial in trials):
        domains[domain] = _summary([trial for trial in trials if trial["domain"] == domain])
    transitions = []
    for key in dict.fromkeys((trial["domain"], trial["from_mhz"], trial["to_mhz"]) for trial in trials):
        of_transition = [trial for trial in trials if (trial["domain"], trial["from_mhz"], trial["to_mhz"]) == key]
        transitions.append(dict(zip(("domain", "from_mhz", "to_mhz"), key)) | _summary(of_transition))
    return {"schema": SCHEMA, **about, "domains": domains, "transitions": transitions, "trials": trials}


def _summary(trials: list[dict[str, Any]]) -> dict[str, Any]:
    good = [trial for trial in trials if trial["verdict"] == "ok"]
    summary: dict[str, Any] = {"n": len(good), "missed": len(trials) - len(good)}
    for name in QUANTITIES:
        summary[name] = statistics([trial[name] for trial in good if trial[name] is not None])
    return summary


def as_csv(measured: dict[str, Any]) -> str:
    """Return a line a transition, ms."""
    names = [f"{name[:-2]}_{statistic}_ms" for name in QUANTITIES for statistic in STATISTICS[1:]]
    lines = [",".join(("gpu", "driver", "date", "domain", "from_mhz", "to_mhz", "n", "missed", *names))]
    head = [measured["gpu"]["name"].replace(",", " "), measured["gpu"]["driver"], measured["started_utc"][:10]]
    for row in measured["transitions"]:
        values = [row[key] for key in ("domain", "from_mhz", "to_mhz", "n", "missed")]
        for name in QUANTITIES:
            known = row[name]
            values += [f"{1e3 * known[statistic]:.6g}" if known else "" for statistic in STATISTICS[1:]]
        lines.append(",".join(map(str, head + values)))
    return "\n".join(lines) + "\n"


def read(path: str | PathLike[str]) -> Latency:
    """Read and check a file of `kernel-dvfs latency`. Raises InputError, in one line."""
    return _latency(str(path), shape.read(path, LatencyFile, SCHEMA, _REMEDY))


def checked(path: str, parsed: Any) -> Latency:
    """Return what a file of `kernel-dvfs latency` says, of its content. Raises InputError with its path, in one
    line."""
    return _latency(path, shape.checked(parsed, LatencyFile, path, _REMEDY, SCHEMA))


def _latency(path: str, file: LatencyFile) -> Latency:
    if file.get("is_dry_run"):
        raise InputError(f"{path}: of a dry run, which sets no clock and so measures no change; {_REMEDY}")
    gpu, way = file["gpu"], file.get("through", NVML)
    # a way by another program takes longer than NVML itself
    through = "" if way == NVML else f", through {way}"
    domains: dict[str, DomainLatency] = {
        domain: _domain(path, f"domains.{domain}", summary)
        for domain in _DOMAINS
        if (summary := file.get("domains", {}).get(domain)) and summary["n"]
    }
    if not domains:
        raise InputError(f"{path}: no change of a clock was seen to land; {_REMEDY}")
    date = file["started_utc"][:10]
    return Latency(
        path=path,
        gpu_name=gpu["name"],
        about=f"measured on {gpu['name']} ({gpu['uuid'][:12]}, driver {gpu['driver']}, {date}{through})",
        domains=domains,
    )


def _domain(path: str, where: str, domain: _Domain) -> DomainLatency:
    settled_s, stall_s = domain["settled_s"], domain["stall_s"]
    if not settled_s or not stall_s:
        name = "stall_s" if settled_s else "settled_s"
        raise InputError(f"{path}: {where}.{name} is None, expected statistics of its changes; {_REMEDY}")
    for name, quantiles in (("settled_s", settled_s), ("stall_s", stall_s)):
        if not quantiles["p5"] <= quantiles["median"] <= quantiles["p95"] <= quantiles["max"]:
            raise InputError(f"{path}: {where}.{name}: its quantiles do not ascend; {_REMEDY}")
    if not settled_s["p95"] > 0:
        raise InputError(f"{path}: {where}.settled_s is 0: a change takes time; {_REMEDY}")
    return DomainLatency(domain["n"], domain["missed"], settled_s, stall_s)
