"""Joules of a token that a running vLLM serves: its own counts of tokens beside its boards' energy counters.

What vLLM counts it says in Prometheus' text at /metrics. Prompt tokens that its prefix cache held cost next to nothing,
so they are left out. What is told goes out in the names of exporters that dashboards know: DCGM's for a board, and of
the token, which no exporter has, in names of ours.
"""

from __future__ import annotations

import math
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_hooks.energy import WORST
from kernel_dvfs_hooks.reader import Reader

_PROMPT, _GENERATED = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
# prompt tokens that were not computed; the first that a version has
_CACHED = ("vllm:prompt_tokens_cached_total", "vllm:prefix_cache_hits_total")
_PATIENCE_S = 10.0
_LONGEST = 1 << 24  # bytes of an answer
_LEAST, MOST = 8, 500  # stretches that a split is made of
_TOLD_SHARE = 0.2  # a share of a token's joules that its standard error may be, to be told


class Tokens(NamedTuple):
    """What a server has counted since it was started."""

    prompt: float  # computed: without those that were cached
    generated: float


class ServerStretch(NamedTuple):
    """What happened between two looks."""

    time_s: float
    tokens: Tokens
    power_w: float | None  # of all boards; None: not to be believed
    verdict: str
    reason: str

    @property
    def energy_j(self) -> float | None:
        """Return the energy of all boards; None where it is not to be believed."""
        return None if self.power_w is None else self.power_w * self.time_s


class Split(NamedTuple):
    """Energy of a server as it follows from its tokens, over many stretches: value and standard error each."""

    stretches: int
    prompt_j: tuple[float, float]  # of a prompt token
    generated_j: tuple[float, float]  # of a generated one
    idle_w: tuple[float, float]  # of the boards without any


def counted(text: str, where: str) -> Tokens:
    """Return the tokens in a text of vLLM's metrics, summed over its engines and models. Raises InputError."""
    counts: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                counts[sample.name] = counts.get(sample.name, 0.0) + sample.value
    except ValueError as error:
        raise InputError(f"{where}: not Prometheus' text format ({error})") from None
    for name in (_PROMPT, _GENERATED):
        if not math.isfinite(counts.get(name, math.nan)):
            raise InputError(f"{where}: no {name}; expected the /metrics of a vLLM server")
    cached = next((counts[name] for name in _CACHED if name in counts), 0.0)
    return Tokens(counts[_PROMPT] - cached, counts[_GENERATED])


def fetched(url: str) -> str:
    """Return the text at an address. Raises InputError."""
    if not url.startswith(("http://", "https://")):
        raise InputError(f"--url {url}: expected http://HOST:PORT/metrics")
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            return str(answer.read(_LONGEST).decode("utf-8", "replace"))
    except (OSError, ValueError) as error:
        raise InputError(f"--url {url}: {error}; is the server running?") from None


def stretches(
    url: str, gpus: Sequence[str], every_s: float, most_s: float
) -> Iterator[tuple[ServerStretch, list[Reader]]]:
    """Yield each stretch of about every_s, and what reads the boards, until most_s are over. gpus: UUIDs or indices of
    all boards of the server. Raises InputError where its metrics or a board cannot be read."""
    readers = [Reader(gpu) for gpu in gpus]
    try:
        for reader in readers:
            reader.begin()
        last, since_s = counted(fetched(url), url), time.monotonic()
        for reader in readers:
            reader.begin()
        end_s = since_s + most_s
        while since_s < end_s:
            time.sleep(every_s)
            now, now_s = counted(fetched(url), url), time.monotonic()
            read = [reader.so_far() for reader in readers]
            for reader in readers:
                reader.next()
            worst = min(read, key=lambda reading: WORST.index(reading["verdict"]))
            believed = worst["verdict"] != "counter" and all(reading["power_w"] is not None for reading in read)
            power_w = sum(reading["power_w"] for reading in read) if believed else None
            done = Tokens(now.prompt - last.prompt, now.generated - last.generated)
            if min(done) >= 0:  # else it was started anew
                yield (
                    ServerStretch(now_s - since_s, done, power_w, worst["verdict"], "; ".join(worst["reasons"])),
                    readers,
                )
            last, since_s = now, now_s
    finally:
        for reader in readers:
            reader.close()


def split(seen: Iterable[ServerStretch]) -> Split | None:
    """Return what a prompt token and a generated one take, by least squares: energy = idle power x time + a x prompt
    tokens + b x generated tokens, all at least 0. None where the stretches are few, or do not tell the two apart.

    It is an estimate, and one of this load: a generated token takes less in a larger batch, which the model leaves out.
    """
    usable = [stretch for stretch in seen if stretch.energy_j is not None and stretch.verdict == "ok"]
    if len(usable) < _LEAST:
        return None
    rows = np.array([(stretch.time_s, *stretch.tokens) for stretch in usable])
    energy_j = np.array([stretch.energy_j for stretch in usable])
    scale = np.abs(rows).max(axis=0)
    if not scale.all() or np.linalg.cond(rows / scale) > 1e3:
        return None
    solved, *_ = np.linalg.lstsq(rows / scale, energy_j, rcond=None)
    rest = energy_j - (rows / scale) @ solved
    variance = float(rest @ rest) / (len(usable) - 3)
    errors = np.sqrt(variance * np.diag(np.linalg.inv((rows / scale).T @ (rows / scale)))) / scale
    idle, prompt, generated = zip((solved / scale).tolist(), errors.tolist())
    is_sure = all(value > 0 and error <= _TOLD_SHARE * value for value, error in (prompt, generated))
    return Split(len(usable), prompt, generated, idle) if is_sure and idle[0] >= 0 else None


def line(stretch: ServerStretch, estimate: Split | None) -> str:
    """Return a stretch in words."""
    prompt, generated = stretch.tokens
    text = f"{stretch.time_s:.1f} s: {prompt:.0f} prompt and {generated:.0f} generated tokens"
    verdict = stretch.verdict if stretch.verdict == "ok" else f"{stretch.verdict}: {stretch.reason}"
    if stretch.energy_j is None:
        return f"{text}: {verdict}"
    a_token = f", {stretch.energy_j / (prompt + generated):.4g} J a token" if prompt + generated else ""
    text = f"{text}, {stretch.power_w:.1f} W{a_token}: {verdict}"
    if not estimate:
        return text
    (prompt_j, prompt_se), (generated_j, generated_se) = estimate.prompt_j, estimate.generated_j
    return (
        f"{text}; over {estimate.stretches} stretches {prompt_j:.3g} +- {prompt_se:.1g} J a prompt token, "
        f"{generated_j:.3g} +- {generated_se:.1g} J a generated one, {estimate.idle_w[0]:.0f} W without any"
    )


class Exported:
    """What Prometheus may ask for: `registry`, of which `show` sets the numbers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._board = {
            name: Gauge(name, what, ["gpu", "UUID"], registry=self.registry)
            for name, what in (
                ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W)."),
                ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ)."),
                ("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz)."),
                ("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz)."),
            )
        }
        self._server = {
            name: Gauge(f"kernel_dvfs_{name}", what, registry=self.registry)
            for name, what in (
                ("power_watts", "Mean power of all boards of the server in the last stretch."),
                ("joules_per_token", "Energy of all boards by prompt and generated tokens in the last stretch."),
                ("joules_per_prompt_token", "Estimate, by regression over stretches."),
                ("joules_per_generated_token", "Estimate, by regression over stretches."),
                ("energy_believed", "1: the numbers of the last stretch can be believed."),
            )
        }

    def show(self, stretch: ServerStretch, estimate: Split | None, readers: Sequence[Reader]) -> None:
        """Set the numbers; what is not known is not a number. Raises InputError where a board cannot be read."""
        for place, reader in enumerate(readers):
            seen = reader.look()
            values = (seen.power_mw, seen.energy_mj, seen.core_mhz, seen.mem_mhz)
            for gauge, value in zip(self._board.values(), values):
                gauge.labels(str(place), reader.uuid).set(math.nan if value is None else value)
            watts = math.nan if seen.power_mw is None else seen.power_mw / 1000
            self._board["DCGM_FI_DEV_POWER_USAGE"].labels(str(place), reader.uuid).set(watts)
        tokens, energy_j = sum(stretch.tokens), stretch.energy_j
        self._server["power_watts"].set(math.nan if stretch.power_w is None else stretch.power_w)
        self._server["joules_per_token"].set(energy_j / tokens if energy_j is not None and tokens else math.nan)
        self._server["joules_per_prompt_token"].set(estimate.prompt_j[0] if estimate else math.nan)
        self._server["joules_per_generated_token"].set(estimate.generated_j[0] if estimate else math.nan)
        self._server["energy_believed"].set(stretch.verdict == "ok")
