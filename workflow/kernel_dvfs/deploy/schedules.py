"""What a schedule asks of one GPU: the pair of a run, or the pairs of its passes. Refuses one made for something
else."""

from __future__ import annotations

from kernel_dvfs.deploy.control import pair_of
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json
from kernel_dvfs.layout import ITERATION_SCHEDULE, SCHEDULE


def run_pair(path: str, about: dict) -> tuple:
    """The one pair of a schedule for a whole run. about: the GPU's facts, with its slug. Raises InputError."""
    content = _read(path, about)
    pairs = {pair_of(clocks, f"{path}, field targets.{name}") for name, clocks in content["targets"].items()}
    if len(pairs) != 1:
        raise InputError(
            f"{path}, field targets: {len(pairs)} different pairs; a whole run takes one (--scope single), a schedule "
            "of passes is played with --pass-level"
        )
    return pairs.pop()


def pass_pairs(path: str, about: dict) -> dict:
    """{pass: pair} of a schedule with granularity `pass`. Raises InputError."""
    content = _read(path, about)
    if content.get("granularity") != "pass":
        raise InputError(
            f"{path}, field granularity: it is {content.get('granularity')!r}; --pass-level plays schedules of passes "
            "(kernel-dvfs choose --granularity pass)"
        )
    return {name: pair_of(clocks, f"{path}, field targets.{name}") for name, clocks in content["targets"].items()}


def check_gpu(path: str, gpu, about: dict) -> None:
    """Raise InputError where a schedule was made for another GPU than the one with these facts."""
    own = gpu.get("slug") if isinstance(gpu, dict) else None
    if own != about["slug"]:
        made_for = f"{gpu.get('kind')} {gpu.get('name')} ({own})" if isinstance(gpu, dict) else repr(gpu)
        raise InputError(
            f"{path}, field gpu.slug: made for {made_for}, this GPU is {about['name']} ({about['slug']}); clocks of "
            "one GPU do not fit another: measure this one, or name the pair yourself with --pair"
        )


def _read(path: str, about: dict) -> dict:
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; make it with kernel-dvfs choose") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}; a schedule of kernel-dvfs choose is expected") from None
    schema = content.get("schema") if isinstance(content, dict) else None
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
