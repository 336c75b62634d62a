"""`kernel-dvfs capture`: a user's own training step, captured and tried, as step.json."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_dvfs.workload.step import Step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Capture a PyTorch training step as a CUDA graph and find out what each of its kernels is. FUNCTION takes no "
        "arguments and returns the step: a function without arguments (static inputs, no wait of the host), or a "
        "torch.cuda.CUDAGraph(keep_graph=True). The step is run a few times; clocks are left alone."
    )
    parser.epilog = "example: kernel-dvfs capture train.py:make_step -o step.json"
    parser.add_argument("source", metavar="FILE.py:FUNCTION", help="what makes the step")
    parser.add_argument("-o", "--output", default="step.json", metavar="STEP.json", help="default: step.json")
    parser.add_argument("--name", default="", help="name of the step (default: from file and function)")
    parser.add_argument(
        "--results", default="results", metavar="DIR", help="folder of the built native layer (default: results)"
    )
    parser.add_argument("--keep", default="", metavar="DIR", help="also keep the nodes and the trace in a folder")


def run(options: argparse.Namespace) -> None:
    from kernel_dvfs.step import capturing
    from kernel_dvfs.workload import step as steps

    step = capturing.capture(options.source, options.name, options.results, _say, options.keep)
    if capturing.same_content(options.output, step):
        _say(f"{options.output}: holds this very step already ({step.checksum}), and is kept")
        return
    steps.write(options.output, step)
    for line in summary(step):
        print(line)


def summary(step: Step) -> list[str]:
    """What was captured, in a few lines."""
    lines = [
        f"{step.name}: {len(step.nodes)} nodes, {len(step.order)} launches, {len(step.targets)} targets, sections "
        f"{', '.join(step.sections)}"
    ]
    if step.coverage is not None:
        lines.append(f"{100 * step.coverage:.1f} % of the traced time can be measured kernel by kernel")
    if step.state.left_out:
        lines.append(
            f"{step.state.saved_byte} of {step.state.byte} B of its state were saved: {step.state.left_out}; the rest "
            "is as the last run left it"
        )
    lines += [f"left at auto: {target.id} x{target.launches} ({target.reason})" for target in step.left_at_auto[:10]]
    return lines


def _say(line: str) -> None:
    print(line, file=sys.stderr)
