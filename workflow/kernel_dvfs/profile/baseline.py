"""Which point of each kernel the others are compared with.

It knows points, not files: an error is worded here, and the caller's RawTable looks up its place in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_dvfs.profile.units import POWER_CAPS
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs.profile.raw import RawTable

HIGHEST = "highest"


@dataclass(frozen=True, slots=True)
class KernelSetting:
    """One kernel at one setting."""

    kernel: str
    core_mhz: float | None  # None = auto
    mem_mhz: float | None
    settings: dict[str, Any]  # the further ones, by column
    rows: list[int]  # the table's rows that are pooled here
    time_s: float  # mean time of a launch
    auto: bool  # whether any of these rows is marked is_auto
    reference: bool  # whether any of them is marked is_reference


@dataclass(frozen=True, slots=True)
class Reference:
    """The baseline that a user asks for."""

    core_mhz: float | None  # None = auto
    mem_mhz: float | None
    settings: dict[str, str]  # further settings that it must have, as words


def parse_reference(text: object) -> Reference | str:
    """Return `highest`, or `CORE[,MEM][,SETTING=VALUE...]` (MHz or `auto` for a clock), as HIGHEST or a Reference.

    A list of the same parts, or a bare number, is taken too, since YAML yields these. Raises InputError otherwise.
    """
    parts = [str(part) for part in text] if isinstance(text, (list, tuple)) else str(text).split(",")
    parts = [part.strip() for part in parts]
    if parts == [HIGHEST]:
        return HIGHEST
    clocks = [part for part in parts if "=" not in part]
    named = [part.partition("=") for part in parts if "=" in part]
    if not 1 <= len(clocks) <= 2 or parts[: len(clocks)] != clocks:
        raise _not_a_reference(text)
    core_mhz, mem_mhz = (_clock(clock, text) for clock in (*clocks, "auto")[:2])
    return Reference(core_mhz, mem_mhz, {name.strip(): value.strip() for name, _, value in named})


def _clock(word: str, text: object) -> float | None:
    if word.lower() == "auto":
        return None
    try:
        mhz = float(word)
    except ValueError:
        mhz = -1.0
    if not 0 < mhz < 1e6:
        raise _not_a_reference(text)
    return mhz


def _not_a_reference(text: object) -> InputError:
    return InputError(f"reference {text!r}: not `highest`, nor CORE,MEM in MHz or `auto` (such as 1410,1215)")


def choose_baselines(points: Sequence[KernelSetting], raw: RawTable, reference: object = None) -> set[int]:
    """Return indices into `points` of one baseline per kernel.

    Without `reference`: the auto point, else the point marked is_reference (of several auto points, say at
    different power caps, the one marked is_reference). With it: that point; `highest` is the highest memory
    clock, then the highest core clock. Where the reference leaves several points, the highest power cap wins, then
    the least time: what somebody chooses who tunes for speed alone.

    Raises InputError naming the kernel and its rows if that is not exactly one point.
    """
    wanted = parse_reference(reference) if reference is not None else None
    by_kernel: dict[str, list[int]] = {}
    for index, point in enumerate(points):
        by_kernel.setdefault(point.kernel, []).append(index)
    return {
        _marked(points, indices, raw) if wanted is None else _wanted(points, indices, raw, wanted, reference)
        for indices in by_kernel.values()
    }


def _marked(points: Sequence[KernelSetting], indices: list[int], raw: RawTable) -> int:
    candidates = [i for i in indices if points[i].auto]
    references = [i for i in indices if points[i].reference]
    if len(candidates) > 1:
        candidates = [i for i in candidates if points[i].reference] or candidates
    candidates = candidates or references
    column = next((name for name in ("is_auto", "is_reference") if name in raw.columns), None)
    first = points[indices[0]]
    if not candidates:
        raise raw.fault(
            f"kernel {first.kernel} has no baseline row (its first row is here); leave both clocks of "
            "one row empty (or is_auto = 1), mark one is_reference = 1, or name it with `reference` "
            "(CORE,MEM or highest)",
            column,
            first.rows[0],
        )
    if len(candidates) > 1:
        earlier, later = (points[i].rows[0] for i in candidates[:2])
        raise raw.fault(
            f"kernel {first.kernel} has several baselines: {raw.place(earlier)} and {raw.place(later)} differ in "
            "their settings; mark one (is_reference = 1), or name it with `reference`",
            column,
            later,
        )
    return candidates[0]


def _wanted(
    points: Sequence[KernelSetting], indices: list[int], raw: RawTable, reference: Reference | str, text: object
) -> int:
    if isinstance(reference, str):  # HIGHEST
        rank = [((points[i].mem_mhz or 0.0, points[i].core_mhz or 0.0), i) for i in indices]
        highest_mhz = max(rank)[0]
        candidates = [i for clocks, i in rank if clocks == highest_mhz]
    else:
        candidates = [i for i in indices if _meets(points[i], reference)]
    if not candidates:
        first = points[indices[0]]
        pairs = sorted({(points[i].core_mhz or 0.0, points[i].mem_mhz or 0.0) for i in indices})
        core_mhz, mem_mhz = (f"{mhz:g}" if mhz else "auto" for mhz in pairs[-1])
        raise raw.fault(
            f"kernel {first.kernel} (its first row is here) has no point at reference {text}; "
            f"it has {len(pairs)} clock pairs up to {core_mhz},{mem_mhz}",
            None,
            first.rows[0],
        )
    for name in POWER_CAPS:
        caps = [points[i].settings.get(name) for i in candidates]
        if any(cap is not None for cap in caps):
            highest = max(cap for cap in caps if cap is not None)
            candidates = [i for i, cap in zip(candidates, caps, strict=True) if cap == highest]
    return min(candidates, key=lambda i: points[i].time_s)


def _meets(point: KernelSetting, reference: Reference) -> bool:
    if (point.core_mhz, point.mem_mhz) != (reference.core_mhz, reference.mem_mhz):
        return False
    for name, value in reference.settings.items():
        if name not in point.settings:
            return False
        setting = point.settings[name]
        try:
            same = setting == float(value)
        except ValueError:
            same = str(setting) == value
        if not same:
            return False
    return True
