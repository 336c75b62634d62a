"""How long a GPU takes to change its clocks, as `kernel-dvfs latency` measured it: the file, and what is used of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json

if TYPE_CHECKING:
    from os import PathLike

SCHEMA = "kernel-dvfs/latency/1"
NVML = "nvml"  # the way of setting clocks that needs no mention
# quantities that a distribution is given of, s: call of the driver, request until first effect, settled, and shown by
# NVML, and how long a running kernel stood still
QUANTITIES = ("call_s", "first_effect_s", "settled_s", "nvml_s", "stall_s")
STATISTICS = ("n", "mean", "median", "p5", "p95", "max")


@dataclass(frozen=True, slots=True)
class DomainLatency:
    """What a change of one clock takes, s, over all its starts and targets."""

    n: int  # changes that were seen
    missed: int  # that did not come to what was asked for
    settled_s: dict[str, float]  # STATISTICS
    stall_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class Latency:
    """A file of `kernel-dvfs latency`."""

    path: str
    gpu_name: str
    about: str  # "measured on NVIDIA H200 (GPU-9fca33e6, driver 580.1, 2026-11-22)"
    domains: dict[str, DomainLatency]  # core, and mem where its clock can be locked

    @property
    def _slower(self) -> DomainLatency:
        return max(self.domains.values(), key=lambda each: each.settled_s["p95"])

    @property
    def latencies_s(self) -> list[float]:
        """Median and 95th percentile of the time until the clock has settled, of the slower domain; ascending."""
        slower = self._slower.settled_s
        # to a microsecond: files are named by it
        return sorted({max(round(slower[each], 6), 1e-6) for each in ("median", "p95")})

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
        """What a change of `domain` costs on average, since over many of them the mean adds up; None: not measured."""
        found = self.domains.get(domain)
        return found.stall_s["mean"] if found else None


def statistics(values: Sequence[float]) -> dict[str, float] | None:
    """{STATISTICS: value} of at least one value; quantiles by linear interpolation. None for none."""
    if not values:
        return None
    ordered = sorted(values)

    def quantile(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = math.floor(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    found = (len(ordered), math.fsum(ordered) / len(ordered), *map(quantile, (0.5, 0.05, 0.95)), ordered[-1])
    return dict(zip(STATISTICS, found))


def content(about: dict[str, Any], trials: list[dict[str, Any]]) -> dict[str, Any]:
    """What the file holds. about: gpu, protocol and dates; trials: one a change, each with domain, from_mhz, to_mhz,
    verdict and QUANTITIES."""
    domains = {}
    for domain in dict.fromkeys(trial["domain"] for trial in trials):
        domains[domain] = _summary([trial for trial in trials if trial["domain"] == domain])
    transitions = []
    for key in dict.fromkeys((trial["domain"], trial["from_mhz"], trial["to_mhz"]) for trial in trials):
        own = [trial for trial in trials if (trial["domain"], trial["from_mhz"], trial["to_mhz"]) == key]
        transitions.append(dict(zip(("domain", "from_mhz", "to_mhz"), key)) | _summary(own))
    return {"schema": SCHEMA, **about, "domains": domains, "transitions": transitions, "trials": trials}


def _summary(trials: list[dict[str, Any]]) -> dict[str, Any]:
    good = [trial for trial in trials if trial["verdict"] == "ok"]
    found: dict[str, Any] = {"n": len(good), "missed": len(trials) - len(good)}
    for name in QUANTITIES:
        found[name] = statistics([trial[name] for trial in good if trial[name] is not None])
    return found


def as_csv(found: dict[str, Any]) -> str:
    """A line a transition, ms."""
    names = [f"{name[:-2]}_{each}_ms" for name in QUANTITIES for each in STATISTICS[1:]]
    lines = [",".join(("gpu", "driver", "date", "domain", "from_mhz", "to_mhz", "n", "missed", *names))]
    head = [found["gpu"]["name"].replace(",", " "), found["gpu"]["driver"], found["started_utc"][:10]]
    for row in found["transitions"]:
        own = [row[key] for key in ("domain", "from_mhz", "to_mhz", "n", "missed")]
        for name in QUANTITIES:
            known = row[name]
            own += [f"{1e3 * known[each]:.6g}" if known else "" for each in STATISTICS[1:]]
        lines.append(",".join(map(str, head + own)))
    return "\n".join(lines) + "\n"


def read(path: str | PathLike[str]) -> Latency:
    """Read and check a file of `kernel-dvfs latency`. Raises InputError, in one line."""
    try:
        found = read_json(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; kernel-dvfs latency makes it") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}; kernel-dvfs latency makes it") from None
    return checked(str(path), found)


def checked(path: str, found: Any) -> Latency:
    """What a file of `kernel-dvfs latency` says, of its content. Raises InputError with its path, in one line."""
    try:
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        if found.get("is_dry_run"):
            raise ValueError("of a dry run, which sets no clock and so measures no change")
        gpu = {key: _text(found["gpu"][key], f"gpu.{key}") for key in ("name", "uuid", "driver")}
        date = _text(found["started_utc"], "started_utc")[:10]
        # a way by another program takes longer than NVML itself
        way = _text(found.get("through", NVML), "through")
        through = "" if way == NVML else f", through {way}"
        domains = {
            domain: _domain(f"domains.{domain}", found["domains"][domain])
            for domain in ("core", "mem")
            if found["domains"].get(domain, {}).get("n")
        }
        if not domains:
            raise ValueError("no change of a clock was seen to land")
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: {error} is missing or of another kind; kernel-dvfs latency makes it") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}; kernel-dvfs latency makes it") from None
    return Latency(
        path=path,
        gpu_name=gpu["name"],
        about=f"measured on {gpu['name']} ({gpu['uuid'][:12]}, driver {gpu['driver']}, {date}{through})",
        domains=domains,
    )


def _domain(where: str, found: dict[str, Any]) -> DomainLatency:
    values = {name: _statistics(f"{where}.{name}", found[name]) for name in ("settled_s", "stall_s")}
    if not values["settled_s"]["p95"] > 0:
        raise ValueError(f"{where}.settled_s is 0: a change takes time")
    return DomainLatency(n=int(found["n"]), missed=int(found["missed"]), **values)


def _statistics(where: str, found: dict[str, Any]) -> dict[str, float]:
    values = {name: found[name] for name in STATISTICS}
    for name, value in values.items():
        if type(value) not in (int, float) or not 0 <= value < 1e6:
            raise ValueError(f"{where}.{name} is {value!r}; expected a number of seconds >= 0")
    if not values["p5"] <= values["median"] <= values["p95"] <= values["max"]:
        raise ValueError(f"{where}: its quantiles do not ascend")
    return values


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f"{where} is {value!r}; expected a text")
    return value
