"""What a schedule asks of one GPU: the pair of a run, or the pairs of its passes. Those of another GPU are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json
from kernel_dvfs.gpu.clocks import AUTO
from kernel_dvfs.layout import ITERATION_SCHEDULE, SCHEDULE

if TYPE_CHECKING:
    from kernel_dvfs.deploy.control import Pair
    from kernel_dvfs.gpu.clocks import Clock


def run_pair(path: str, about: Mapping[str, Any]) -> Pair:
    """The one pair of a schedule for a whole run. about: the GPU's facts, with its slug. Raises InputError."""
    content = _read(path, about)
    pairs = {_pair_of(clocks, f"{path}, field targets.{name}") for name, clocks in content["targets"].items()}
    if len(pairs) != 1:
        raise InputError(
            f"{path}, field targets: {len(pairs)} different pairs; a whole run takes one (--scope single), a schedule "
            "of passes is played with --pass-level"
        )
    return pairs.pop()


def pass_pairs(path: str, about: Mapping[str, Any]) -> dict[str, Pair]:
    """{pass: pair} of a schedule with granularity `pass`. about: as above. Raises InputError."""
    content = _read(path, about)
    if content.get("granularity") != "pass":
        raise InputError(
            f"{path}, field granularity: it is {content.get('granularity')!r}; --pass-level plays schedules of passes "
            "(kernel-dvfs choose --granularity pass)"
        )
    return {name: _pair_of(clocks, f"{path}, field targets.{name}") for name, clocks in content["targets"].items()}


def check_gpu(path: str, gpu: Any, about: Mapping[str, Any]) -> None:
    """Raise InputError where a schedule was made for another GPU (`gpu`: its kind, name, slug) than the one `about`."""
    own = gpu.get("slug") if isinstance(gpu, dict) else None
    if own != about["slug"]:
        made_for = f"{gpu.get('kind')} {gpu.get('name')} ({own})" if isinstance(gpu, dict) else repr(gpu)
        raise InputError(
            f"{path}, field gpu.slug: made for {made_for}, this GPU is {about['name']} ({about['slug']}); clocks of "
            "one GPU do not fit another: measure this one, or name the pair yourself with --pair"
        )


def _pair_of(clocks: Any, where: str) -> Pair:
    """(core, memory) of a schedule's target. Raises InputError."""

    def clock_of(name: str) -> Clock:
        clock: Any = clocks.get(name) if isinstance(clocks, dict) else None
        if clock == AUTO:
            return AUTO
        if type(clock) not in (int, float) or not 0 < clock < 1e6 or clock != int(clock):
            raise InputError(f"{where}.{name} is {clock!r}; a number of MHz or auto is expected")
        return int(clock)

    return clock_of("core_mhz"), clock_of("mem_mhz")


def schema_of(path: str) -> tuple[str | None, dict[str, Any]]:
    """(schema, content) of a schedule's file, unchecked; (None, {}) of JSON that is none. Raises InputError."""
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; make it with kernel-dvfs choose") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}; a schedule of kernel-dvfs choose is expected") from None
    return (content.get("schema"), content) if isinstance(content, dict) else (None, {})


def _read(path: str, about: Mapping[str, Any]) -> dict[str, Any]:
    schema, content = schema_of(path)
    if schema == ITERATION_SCHEDULE:
        raise InputError(
            f"{path}, field schema: an iteration schedule is played by the program that launches the kernels "
            "(kernel_dvfs.deploy.player), not by apply"
        )
    if schema != SCHEDULE:
        raise InputError(
            f"{path}, field schema: {schema!r} where {SCHEDULE!r} is expected; make it with kernel-dvfs choose"
        )
    if content.get("status") != "optimal" or not isinstance(content.get("targets"), dict) or not content["targets"]:
        raise InputError(f"{path}, field status: {content.get('status')!r}, there is nothing to play")
    check_gpu(path, content.get("gpu"), about)
    return content
