"""What several of these commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernel_dvfs.cli import tell
from kernel_dvfs.cli.arguments import SEED, SIZE, number, one_of, whole
from kernel_dvfs_serving.machine import MeasuredMachine, machine
from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.system import DEFAULTS, check_step
from kernel_dvfs_serving.trace import held, held_by_model

if TYPE_CHECKING:
    from kernel_dvfs_serving.machine import Machine
    from kernel_dvfs_serving.profile import ServingProfile
    from kernel_dvfs_serving.system import ClusterSettings
    from kernel_dvfs_serving.trace import Trace


def add_instance(parser: argparse.ArgumentParser) -> None:
    """What simulates an instance: GPU, model, engine, and how many requests of which draw."""
    add_machine(parser)
    add_usual(parser, "--requests", whole(20, 1_000_000), "N", "simulated per load")
    add_usual(parser, "--max-batch", SIZE, "N", "sequences at once")
    add_usual(parser, "--chunk-tokens", whole(2, 1_000_000), "N", "tokens of a step")
    parser.add_argument("--seed", type=SEED, default=1)


def add_machine(parser: argparse._ActionsContainer) -> None:
    add_usual(parser, "--gpu", str, None, "a simulated GPU")
    add_usual(parser, "--model", str, None, "a served model")
    add_usual(parser, "--host-s", number(0, 10), "S", "the host's time per step")


def add_usual(
    parser: argparse._ActionsContainer, flag: str, read: Callable[[str], object], metavar: str | None, help_text: str
) -> None:
    """An option that, where it is not given, is what a study of the shipped configuration has."""
    usual = DEFAULTS[flag.removeprefix("--").replace("-", "_")]
    shown = f"{usual:g}" if isinstance(usual, float) else usual
    parser.add_argument(flag, type=read, default=usual, metavar=metavar, help=f"{help_text} (default: {shown})")


def instance_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the numbers of add_instance as keywords of make_profile. Raises InputError."""
    check_step(options.max_batch, options.chunk_tokens)
    return {name: getattr(options, name) for name in ("requests", "seed", "max_batch", "chunk_tokens", "host_s")}


def add_headings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--columns",
        nargs="+",
        default=(),
        metavar="COLUMN=HEADING",
        help="what no heading says: TIMESTAMP=sent",
    )


def add_too_long(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--too-long",
        **one_of(("keep", "leave-out", "refuse")),
        default="keep",
        help="requests beyond the model's context or every KV cache (default: keep)",
    )


def held_by_instances(trace: Trace, profile: ServingProfile, machine: Machine, too_long: str) -> Trace:
    """Return the trace as --too-long asks for where the model, or every instance, is too small for requests; say so."""
    trace = held_by_model(trace, profile.model, too_long)
    caches = [machine.kv_tokens(tp) for tp in profile.degrees]
    trace = held(trace, max(caches), "the largest KV cache of an instance", too_long)
    tell(*(f"note: {notice}" for notice in trace.notices))
    return trace


def replayer_of(
    options: argparse.Namespace, profile: ServingProfile, settings: ClusterSettings, **columns: Any
) -> Replayer:
    """Return a Replayer on a profile's machine; note where that is fitted to measurements. Raises InputError."""
    limits = {"max_batch": settings.max_batch, "chunk_tokens": settings.chunk_tokens}
    runs_on = machine(profile, options.gpu, options.model, options.host_s, **limits)
    if isinstance(runs_on, MeasuredMachine):
        tell(f"note: {runs_on.note()}")
    return Replayer(runs_on, profile, **columns)
