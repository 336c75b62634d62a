"""Did the GPU do what was asked? One verdict per point, with reasons in words; every point stays in the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from kernel_dvfs_clocks.clocks import BASELINE, POWER_CAP, THROTTLING, Pair

if TYPE_CHECKING:
    from kernel_dvfs.measurement.window import Watched

Verdict = Literal["ok", "throttled", "not_reached", "disturbed", "unstable", "counter", "not_free"]
# verdicts of points that say nothing about their clocks: kept and shown, but left out of every calculation
UNUSABLE = ("disturbed", "counter", "not_free", "unsupported")

# a clock is reached if it is within 15 MHz or 1 % of the request
_REACHED_MHZ = 15
_REACHED_SHARE = 0.01
POWER_CAP_ACTIVE = f"{THROTTLING[POWER_CAP]} active"


def is_reached(request: float | str, got: float) -> bool:
    """Return whether a clock of `got` MHz is the one requested (MHz or AUTO); AUTO asks for nothing, so any will do."""
    return isinstance(request, str) or abs(got - request) <= max(_REACHED_MHZ, _REACHED_SHARE * request)


def judge(
    pair: Pair,
    reached: Mapping[str, float],
    windows: Sequence[Watched],
    counter: str = "",
    disturbances: Sequence[str] = (),
    unstable: str = "",
) -> tuple[Verdict, list[str], str | None]:
    """Return (verdict, reasons in words, label of the pair that a request with another memory clock really ran at, or
    None).

    reached: core_mhz and mem_mhz. counter: what was wrong with the energy counter. disturbances: what came from
    outside. unstable: how wide the interval of the energy stayed. Each of these three is "" or empty where all was
    well; otherwise it makes the point unusable or uncertain, whatever the clocks did.
    """
    verdict, reasons, alias = _clocks(pair, reached, windows)
    if counter:
        return "counter", [counter, *reasons], alias
    if disturbances:
        return "disturbed", [*disturbances, *reasons], alias
    if unstable:
        # that a clock was not reached matters more
        return ("unstable" if verdict == "ok" else verdict), [*reasons, unstable], alias
    return verdict, reasons, alias


def _clocks(
    pair: Pair, reached: Mapping[str, float], windows: Sequence[Watched]
) -> tuple[Verdict, list[str], str | None]:
    """Return what `judge` does, by the clocks alone."""
    held = held_by(windows)
    missed = []
    for domain, request in zip(("core", "mem"), pair):
        got = reached[f"{domain}_mhz"]
        if not is_reached(request, got):
            missed.append((domain, f"{domain} clock: asked {request} MHz, reached {got:g} MHz"))
    if pair == BASELINE or (not missed and not held):
        return "ok", held, None
    alias = None
    if any(domain == "mem" for domain, _ in missed):
        alias = f"{pair[0]}-{reached['mem_mhz']:g}"
    reasons = [reason for _, reason in missed]
    if held:
        reasons += held
        # with the core at auto, running at the cap is what the governor normally does; above what was asked for no cap
        # holds it: the lock never took
        core, core_mhz = pair[0], reached["core_mhz"]
        is_held = not isinstance(core, str) and core_mhz < core and not is_reached(core, core_mhz)
        return ("throttled" if is_held else "not_reached" if missed else "ok"), reasons, alias
    return "not_reached", reasons, alias


def held_by(windows: Sequence[Watched]) -> list[str]:
    """Return what held the clocks down in any of the windows, in words."""
    bits = {bit for window in windows for bit in window["reasons"]}
    if any(window["cap_ns"] for window in windows):
        bits.add(hex(POWER_CAP))
    names = [f"{name} active" for bit, name in THROTTLING.items() if hex(bit) in bits]
    if not names and any(window["thermal_delta"] for window in windows):
        names.append("thermal slowdown active")
    return names
