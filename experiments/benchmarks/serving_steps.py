"""Steps of the simulated serving engine beside measured ones: an H200's own run, and public times of an H100.

    python experiments/benchmarks/serving_steps.py -o experiments/results/serving_steps.txt
    python experiments/benchmarks/serving_steps.py --fit    # only print what the single operators say of the spec

Reads gpu_decode_h200.csv (gpu_decode.py). What `serving` says in gpu/specs/h200_sxm.yaml rests on its single operators:
`linear` of the 7B and TP8 layouts at 1, 2, 4 ... 128 tokens, `stack` at 256, 1024 and 4096 tokens, `attention`,
`prompt`, `small`, `operator` and `clock`. Whole steps, the TP4 layout's layers and all other batches took no part, nor
did any figure of an H100.

before: the serving families as they were for Hopper, mostly an A100's (13 bytes per clock and SM). after: as they are.
Simulated over measured, less 1. NVLink and the host are left out on both sides.
"""

import argparse
import csv
import os
import statistics
import sys
from math import log
from pathlib import Path

from scipy.optimize import least_squares

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from kernel_dvfs.gpu.spec import merge
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text
from kernel_dvfs_serving.models import decode_attention
from kernel_dvfs_serving.steps import StepModel

MEASURED = Path(__file__).parents[1] / "results" / "gpu_decode_h200.csv"
LAYOUTS = {"llama2-70b-tp8": ("llama2-70b", 8), "llama2-70b-tp4": ("llama2-70b", 4), "llama2-7b-tp1": ("llama2-7b", 1)}
LINEARS = ("qkv_linear", "output_linear", "gate_up_linear", "down_linear")
# one rank alone was measured
ALONE = {"interconnect": {"latency_us": {"2": 0, "4": 0, "8": 0}, "gb_per_s": 1e6, "byte_pj": 0}}
BEFORE = {
    "serving": {
        "linear": {
            "tensor_efficiency": 0.83,
            "dram_efficiency": 0.9,
            "sm_byte_per_clock": 13,
            "half_filled_tokens": 64,
            "latency_us": 3,
        },
        # two launches of 3 us: the attention's input and output were counted as a kernel of their own
        "decode_attention": {
            "tensor_efficiency": 0.9,
            "tensor_energy": 1,
            "tile_rows": 1,
            "dram_efficiency": 0.8,
            "sm_byte_per_clock": 13,
            "latency_us": 6,
        },
        **{name: {"latency_us": 3} for name in ("residual", "gelu", "softmax", "permute", "embedding")},
    }
}
# PyTorch splits a decode step's attention over the cache only while the heads to be read are fewer than this (0.8 of
# twice the SMs). Beyond it one block computes 128 rows of queries for a head's whole cache: bound by that arithmetic,
# and no kernel that an engine would decode with. Figures of those rows of `attention` and `operator`
SPLIT_HEADS = 211
WHOLE_TILES = {
    "serving": {
        "decode_attention": {"tensor_efficiency": 0.37, "tensor_energy": 1.09, "tile_rows": 128, "latency_us": 6.2}
    }
}
# microsoft/vidur (MIT), data/profiling/compute/h100/meta-llama/Llama-2-70b-hf/mlp.csv at 683364e: mean us on an H100 of
# LINEARS: {degree: {tokens: (...)}}, to a microsecond or so
VIDUR_US = {
    8: {
        1: (13.05, 9.25, 43.55, 22.15),
        8: (12.25, 9.0, 43.65, 22.45),
        16: (13.05, 9.1, 43.85, 22.55),
        32: (13.2, 9.0, 48.05, 27.7),
        64: (13.15, 10.15, 45.2, 25.1),
        128: (15.4, 10.95, 51.9, 26.7),
        384: (23.25, 17.95, 88.7, 41.8),
        1024: (45.35, 33.7, 170.1, 82.95),
        2048: (83.15, 49.85, 333.6, 152.3),
        4096: (150.6, 93.7, 642.75, 296.0),
    },
    4: {
        1: (18.9, 15.6, 80.7, 42.75),
        16: (20.1, 14.5, 81.45, 44.7),
        64: (21.55, 17.0, 86.65, 45.35),
        112: (25.25, 18.05, 84.0, 46.95),
    },
}


# what the fit of linear layers uses; the H200's rates (published), with the share of cycles that tensor cores run
FITTED_TOKENS, FITTED_STACKS = (1, 2, 4, 8, 16, 32, 64, 128), (256, 1024, 4096)
DRAM, TENSOR, SMS, HEAD = 4800e9, 540.7e12 * 0.908, 132, 128
TOP_GHZ, WHOLE_GHZ = 1.98, 1.78  # single operators below the power limit, whole tiles at it
# bytes per clock and SM of a linear layer: `clock` shows its time at 1515 MHz 4.8 % above that at 1980 (1 token), at
# 1485 MHz 2.8 % (32 tokens), which is 23 and 27 with an overlap of 6
CLOCK_BYTE = 25


class Rank:
    """One rank of a model, as it was measured: no all-reduce, no host."""

    def __init__(self, gpu, model, tp, figures):
        self.model = StepModel(gpu, model, tp, merge(figures, ALONE), host_s=0)
        self.tp, self.top_mhz = tp, self.model.top_mhz

    def step(self, tokens, context):
        """(s, J) of a decode step."""
        time_s, energy_j = self.model.at(self.top_mhz).step(tokens, 0, tokens * context)
        return time_s, energy_j / self.tp

    def kernels(self, kernels):
        """(s, J) of [(kernel, launches)] in a row, at the clock that the power limit leaves."""
        for mhz in reversed(self.model.clocks):
            launched = [(count, *self.model.launch(kernel, mhz)) for kernel, count in kernels]
            time_s, energy_j = (sum(each[0] * each[place] for each in launched) for place in (1, 2))
            if mhz < self.model.clocks[-1]:  # the cap holds it
                energy_j *= self.model.held_factor
            if energy_j <= self.model.spec["governor"]["cap_w"] * time_s:
                break
        return time_s, energy_j

    def linears(self, tokens, names=(*LINEARS, "logits_linear"), times=True):
        """(s, J) of linear layers, as often as a step has them, or once."""
        rows = [row for row in self.model.rows(tokens) if row.id in names]
        return self.kernels([(self.model.kernel(row), row.launches if times else 1) for row in rows])

    def attention(self, tokens, context):
        """(s, J) of one layer's decode attention."""
        row = decode_attention(self.model.model, self.tp, tokens * context)
        return self.kernels([(self.model.kernel(row), 1)])


def measured():
    with open(MEASURED, newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if not row["error"]]


def figures_of(row, version):
    """Overrides of the spec for a row of the measurement: of its attention kernel, and of `before`."""
    if version == "before":
        return BEFORE
    return WHOLE_TILES if row["context"] and heads_read(row) >= SPLIT_HEADS else {}


def simulated(row, version, ranks):
    """(s, J) of what a row measured."""
    figures = figures_of(row, version)
    key = row["layout"], version, id(figures)
    if key not in ranks:
        ranks[key] = Rank("h200_sxm", *LAYOUTS[row["layout"]], figures)
    rank, tokens = ranks[key], int(row["tokens"])
    if row["part"] == "step":
        return rank.step(tokens, int(row["context"]))
    if row["part"] == "operator":
        return rank.attention(tokens, int(row["context"]))
    return rank.linears(tokens)


def h200() -> list[str]:
    lines, errors, ranks = [], {}, {}
    for row in measured():
        if row["layout"] not in LAYOUTS or row["part"] not in ("step", "stack", "operator"):
            continue
        if row["operator"] == "prompt_attention" or (row["part"] == "stack" and int(row["tokens"]) > 256):
            continue  # the stack's output matrix saw all tokens, a step's at most 256
        time_s, energy_j = 1e-6 * float(row["time_us"]), 1e-3 * float(row["energy_mj"])
        cells = []
        for version in ("before", "after"):
            own = simulated(row, version, ranks)
            off = own[0] / time_s - 1, own[1] / energy_j - 1
            cells += [f"{100 * each:+7.1f}" for each in off]
            errors.setdefault((row["part"], version), []).append(off)
        kernel = "whole tiles" if figures_of(row, "after") else ""
        lines.append(
            f"  {row['part']:8} {row['layout']:14} {row['tokens']:>6} {row['context'] or '-':>7} {1e3 * time_s:9.3f} "
            f"{energy_j:8.3f} {float(row['power_w']):6.0f} {float(row['sm_mhz']):6.0f}   {cells[0]}  {cells[2]}   "
            f"{cells[1]}  {cells[3]}   {kernel}".rstrip()
        )
    lines += ["", "  worst and mean absolute error, %        time before, after         energy before, after"]
    for part in ("step", "stack", "operator"):
        cells = []
        for place in (0, 1):
            for version in ("before", "after"):
                off = [100 * abs(each[place]) for each in errors[part, version]]
                cells.append(f"{max(off):5.1f} ({statistics.fmean(off):4.1f})")
        lines.append(f"  {part:8} {len(errors[part, 'after']):3} rows                     " + "   ".join(cells))
    return lines


def experts() -> list[str]:
    """A layer's grouped products of Mixtral 8x7B."""
    lines, off = [], {}
    for row in measured():
        if row["operator"] != "expert_mlp":
            continue
        tp, tokens = int(row["layout"][-1]), int(row["tokens"])
        rank = Rank("h200_sxm", "mixtral-8x7b", tp, {})
        names = ("expert_gate_up", "expert_down")
        time_s, energy_j = rank.kernels(
            [(rank.model.kernel(own), 1) for own in rank.model.rows(tokens) if own.id in names]
        )
        time = 1e6 * time_s / float(row["time_us"]) - 1
        energy = f"{100 * (1e3 * energy_j / float(row['energy_mj']) - 1):+7.1f}" if row["energy_mj"] else ""
        off.setdefault(tokens <= 128, []).append(100 * abs(time))
        head = f"  {tp:2} {tokens:6} {row['note']:>17} {float(row['time_us']):9.1f}"
        lines.append(f"{head}   {100 * time:+7.1f}  {energy}".rstrip())
    for few, said in ((True, "up to 128 tokens"), (False, "256 tokens and more")):
        lines.append(f"  {said}: worst {max(off[few]):.1f} %, mean {statistics.fmean(off[few]):.1f} %")
    return lines


def h100() -> list[str]:
    lines, errors = [], {"before": {}, "after": {}}
    ranks = {
        (tp, version): Rank("h100_sxm", "llama2-70b", tp, BEFORE if version == "before" else {})
        for tp in VIDUR_US
        for version in errors
    }
    for tp, rows in VIDUR_US.items():
        for tokens, us in rows.items():
            cells = []
            for version in errors:
                own = [1e6 * ranks[tp, version].linears(tokens, (name,), times=False)[0] for name in LINEARS]
                off = sum(own) / sum(us) - 1
                errors[version].setdefault(tokens >= 384, []).append(off)
                cells.append(
                    f"{100 * off:+7.1f} (" + " ".join(f"{100 * (a / b - 1):+6.1f}" for a, b in zip(own, us)) + ")"
                )
            lines.append(f"  {tp:2} {tokens:6} {sum(us):8.1f}   {cells[0]}   {cells[1]}")
    for many, said in ((False, "up to 128 tokens"), (True, "384 tokens and more")):
        ranges = [f"{100 * min(own[many]):+.0f} to {100 * max(own[many]):+.0f} %" for own in errors.values()]
        lines.append(f"  a layer's four, {said}: {ranges[0]} before, {ranges[1]} after")
    return lines


# --- the fit ----------------------------------------------------------------------------------------------------------


def fit() -> list[str]:
    """The figures of linear layers and decode attention that the single operators give."""
    rows = [row for row in measured() if row["layout"] in LAYOUTS]
    overlap = StepModel("h200_sxm", "llama2-7b", 1).spec["families"]["linear"]["overlap"]
    single = [
        row
        for row in rows
        if row["part"] == "linear" and row["layout"] != "llama2-70b-tp4" and int(row["tokens"]) in FITTED_TOKENS
    ]
    stacks = [row for row in rows if row["part"] == "stack" and int(row["tokens"]) in FITTED_STACKS]
    of_layout = {
        layout: {row["operator"]: row for row in rows if row["part"] == "linear" and row["layout"] == layout}
        for layout in LAYOUTS
    }

    def layer_s(values, row, tokens, ghz):
        latency_us, dram, half, tensor = values
        flop = float(row["tensor_flop"]) / float(row["tokens"])
        weights = flop / 2
        inner = (float(row["read_byte"]) / 2 - weights) / float(row["tokens"])
        byte = 2 * (weights + tokens * (inner + weights / inner))
        core_s = max(flop * tokens * (1 + half / tokens) / (TENSOR * tensor), byte / CLOCK_BYTE / SMS / 1e9) / ghz
        memory_s = byte / (DRAM * dram)
        return latency_us * 1e-6 + (core_s**overlap + memory_s**overlap) ** (1 / overlap)

    def stack_s(values, row):
        layers = {"llama2-7b-tp1": 32}.get(row["layout"], 80)
        tokens, ghz = int(row["tokens"]), float(row["sm_mhz"]) / 1e3
        return sum(
            (layers if name != "logits_linear" else 1) * layer_s(values, own, tokens, ghz)
            for name, own in of_layout[row["layout"]].items()
        )

    def linear_errors(values):
        singles = [log(layer_s(values, r, int(r["tokens"]), TOP_GHZ) / 1e-6 / float(r["time_us"])) for r in single]
        return [*singles, *(6 * log(stack_s(values, r) / 1e-6 / float(r["time_us"])) for r in stacks)]

    linear = least_squares(
        linear_errors, (3, 0.88, 32, 0.9), bounds=((1, 0.6, 0, 0.6), (8, 1, 200, 1)), loss="soft_l1", f_scale=0.05
    ).x
    said = [
        f"linear: latency {linear[0]:.1f} us, dram {linear[1]:.3f}, half filled at {linear[2]:.0f} tokens, tensor "
        f"{linear[3]:.3f} (of the clock counted)"
    ]
    for split, tile in ((True, 64), (False, 128)):
        attention = [
            row
            for row in rows
            if (row["part"] == "attention" or (row["part"] == "clock" and row["context"]))
            and (heads_read(row) < SPLIT_HEADS) == split
            and heads_read(row) >= 16
        ]

        def errors(values, attention=attention, tile=tile, split=split):
            latency_us, dram, tensor = values
            found = []
            for row in attention:
                heads = heads_read(row) * int(row["context"])
                ghz = float(row["sm_mhz"]) / 1e3 if row["part"] == "clock" else TOP_GHZ if split else WHOLE_GHZ
                core_s = 4 * HEAD * tile * heads / (TENSOR * tensor) / ghz
                memory_s = 4 * HEAD * heads / (DRAM * (dram if split else 0.91))
                own_s = latency_us * 1e-6 + (core_s**overlap + memory_s**overlap) ** (1 / overlap)
                found.append(log(own_s / 1e-6 / float(row["time_us"])))
            return found

        found = least_squares(
            errors, (7, 0.85, 0.3), bounds=((3, 0.5, 0.05), (20, 1, 1)), loss="soft_l1", f_scale=0.05
        ).x
        dram = f"dram {found[1]:.2f}, " if split else ""
        said.append(f"decode attention, tiles of {tile}: latency {found[0]:.1f} us, {dram}tensor {found[2]:.2f}")
    return said


def heads_read(row) -> int:
    """Heads of the cache that a step reads in one layer, over all sequences."""
    return int(row["tokens"]) * {"llama2-70b-tp8": 1, "llama2-70b-tp4": 2, "llama2-7b-tp1": 32}[row["layout"]]


def report() -> str:
    first = measured()[0]
    return "\n".join(
        [
            "{gpu}, driver {driver}, CUDA {cuda}, PyTorch {torch}, {date}:".format(**first),
            "measured at default clocks, and simulated over measured less 1, %",
            "  part     layout        tokens context        ms        J      W    MHz   time: before    after   "
            "energy: before  after",
            *h200(),
            "",
            "Mixtral 8x7B, a layer's grouped products on one rank (random routes), the same; its figures rest on the",
            "TP4 layout, and there was no such model before",
            "  tp tokens              route        us      time   energy",
            *experts(),
            "",
            "H100, public times of linear layers (microsoft/vidur, MIT), us of one layer's four; simulated over",
            "measured less 1, %: the four together (qkv, output, gate and up, down)",
            "  tp tokens       us   before                                    after",
            *h100(),
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("-o", "--output", default=str(MEASURED.parent / "serving_steps.txt"))
    options = parser.parse_args()
    if options.fit:
        print("\n".join(fit()))
        return
    text = report()
    write_text(options.output, text)
    print(text, end="")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
