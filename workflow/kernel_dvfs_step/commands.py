"""The command that captures a training step."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli import tell
from kernel_dvfs.workload import step as steps
from kernel_dvfs.workload.step import Step
from kernel_dvfs_step import capturing


def add_arguments(parser: ArgumentParser) -> None:
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
        "--results", default="results", metavar="DIR", help="of the built native layer (default: results)"
    )
    parser.add_argument("--keep", default="", metavar="DIR", help="keep the nodes and the trace, too")
    parser.add_argument("--share", action="store_true", help="run even if other processes compute on the GPU")


def run(options: Namespace) -> None:
    step = capturing.capture(options.source, options.name, options.results, tell, options.keep, options.share)
    if capturing.same_content(options.output, step):
        tell(f"{options.output}: holds this very step already ({step.checksum}), and is kept")
        return
    steps.write(options.output, step)
    for line in summary(step):
        print(line)


def summary(step: Step) -> list[str]:
    """Return what was captured, in a few lines."""
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
    lines += _costs(step)
    lines += [f"left at auto: {target.id} x{target.launches} ({target.reason})" for target in step.left_at_auto[:10]]
    return lines


def _costs(step: Step) -> list[str]:
    """Return loop and graph beside each other, where both were measured."""
    whole, lines = step.whole, []
    for name, time_us, energy_j in (
        ("as a loop", whole.loop_us, whole.loop_j),
        ("as a graph", whole.graph_us, whole.graph_j),
    ):
        if time_us is None:
            continue
        energy = "" if energy_j is None else f", {energy_j:.4g} J"
        per = [f", {1e3 * energy_j / count:.4g} mJ a {item}" for item, count in step.items.items() if energy_j]
        lines.append(f"{name}: {1e-3 * time_us:.4g} ms{energy}{''.join(per)}")
    return lines
