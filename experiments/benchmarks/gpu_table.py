"""The result files of gpu_kernels.py and gpu_auto_only.py as the Markdown table of docs/native.md.

python experiments/benchmarks/gpu_table.py
"""

import argparse
import csv
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
HEAD = (
    "| row | x | ours, us | PyTorch eager, us | ratio | compiled, us | of copy | of GEMM peak | W | SM MHz |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def read(name):
    with open(RESULTS / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(kernels="gpu_kernels_h200.csv", clocks="auto_only_h200.csv") -> str:
    """Times of one run beside PyTorch; watts and SM MHz of each kernel running alone, from the other."""
    alone = {line["kernel"]: line for line in read(clocks)}
    lines = [HEAD]
    for line in read(kernels):
        watts = alone[line["row"]]
        cells = (
            line["row"],
            line["launches_per_iteration"],
            f"{float(line['time_us']):.1f}",
            f"{float(line['torch_eager_us']):.1f}",
            f"{float(line['ours_over_eager']):.3f}",
            f"{float(line['torch_compile_us']):.1f}" if line["torch_compile_us"] else "",
            "" if line["of_peak_at_clock"] else f"{float(line['of_copy']):.3f}",
            f"{float(line['of_peak_at_clock']):.3f}" if line["of_peak_at_clock"] else "",
            f"{float(watts['power_w']):.0f}",
            f"{float(watts['sm_mhz']):.0f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(table())
