"""Instructions of the native kernels beside arithmetic: what `instruction_per_byte` in gpu/specs/h200_sxm.yaml counts.

Compiles native/cuda/*.cu for sm_90 and reads the disassembly: of each kernel, thread instructions that are neither FP32
arithmetic nor special functions (addresses, unpacking, loads, stores, exchanges), of straight code whole, of a loop one
round, over the bytes that one thread's share of it has to move. Instructions of a warp as a whole (uniform datapath,
branches, barriers) do not count. Needs nvcc and nvdisasm, no GPU.

    python experiments/calibration/count_instructions.py            # experiments/results/instructions_sm90.csv
"""

import argparse
import collections
import csv
import io
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "experiments" / "results" / "instructions_sm90.csv"
FLAGS = ("-cubin", "-arch=sm_90", "-std=c++17", "-O3", "--use_fast_math", f"-I{ROOT / 'native' / 'include'}")
COLUMNS = ("family", "kernel", "part", "instructions", "byte", "instruction_per_byte")

# (family, source, kernel, whether of its main loop, bytes of a thread: read + written). 16 bytes a pack; the instances
# are those that rows of gpt3-xl run.
KERNELS = (
    ("permute", "permute", "permute_heads_forward_kernel", False, 16 + 16),
    ("permute", "permute", "permute_heads_backward_kernel", False, 16 + 16),
    ("permute", "permute", "permute_qkv_forward_kernel", False, 48 + 48),
    ("permute", "permute", "permute_qkv_backward_kernel", False, 48 + 48),
    ("gelu", "gelu", "gelu_forward_kernel", False, 32 + 32),
    ("gelu", "gelu", "gelu_backward_kernel", False, 64 + 32),
    ("residual", "residual", "residual_layernorm_kernelILi4", False, 128 + 128),
    ("layernorm", "layernorm", "layernorm_forward_kernelILi4", False, 64 + 64),
    # two packs of three inputs and of one output
    ("layernorm", "layernorm", "layernorm_backward_kernelILi2ELi384", True, 96 + 32),
    # causal: on average half of a row is read and written (instructions masked off count)
    ("softmax", "softmax", "softmax_forward_kernelILi32ELi4", False, 32 + 32),
    ("softmax", "softmax", "softmax_backward_kernelILi32ELi4", False, 64 + 64),
    # eight rows of a column pack
    ("bias", "bias", "bias_backward_kernel", True, 128),
    # two rows of the token table (of a batch of 40, repeated ones once), a share of the positions', two of the sum
    ("embedding", "embedding", "embedding_forward_kernel", False, 54.7),
    ("embedding", "embedding", "wpe_backward_kernel", True, 64),
)

_FP32 = {"FADD", "FMUL", "FFMA", "FMNMX", "HADD2", "HFMA2", "HMUL2", "HMNMX2"}
_SPECIAL = {"MUFU"}
_OF_A_WARP = {"R2UR", "S2UR", "BRA", "EXIT", "BAR", "BSSY", "BSYNC", "WARPSYNC", "LDC", "RET", "CALL", "NOP"}


def opcode(instruction: str) -> str:
    """`FFMA` of `@!P0 FFMA.FTZ R1, R2, R3, R4`."""
    return re.sub(r"^@!?U?P\w\s+", "", instruction).split()[0].partition(".")[0]


def counts(instruction: str) -> bool:
    name = opcode(instruction)
    return not (name.startswith("U") or name in _FP32 | _SPECIAL | _OF_A_WARP)


def bodies(disassembly: str) -> dict:
    """{kernel: its instructions and labels ("name:") in order} of `nvdisasm -c`."""
    found, current = {}, None
    for line in disassembly.splitlines():
        if header := re.match(r"\.text\.(\w+):", line):
            current = found.setdefault(header[1], [])
        elif current is not None and (label := re.match(r"(\.L_x_\d+):", line)):
            current.append(f"{label[1]}:")
        elif current is not None and (code := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line)):
            current.append(code[1])
    return found


def loops(body: list) -> list:
    """The instructions of each loop: from a label to a branch back to it."""
    labels, found = {}, []
    for place, line in enumerate(body):
        if line.endswith(":"):
            labels[line[:-1]] = place
        elif opcode(line) == "BRA" and (to := re.search(r"\((\.L_x_\d+)\)", line)) and to[1] in labels:
            found.append(body[labels[to[1]] : place + 1])
    return found


def count(body: list) -> int:
    return sum(counts(line) for line in body if not line.endswith(":"))


def main_loop(body: list) -> list:
    """The first loop that loads packs from memory; later ones finish what it leaves."""
    return next(loop for loop in loops(body) if any("LDG" in line and ".128" in line for line in loop))


def disassemble(source: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / f"{source}.cubin"
        for command in (
            ["nvcc", *FLAGS, "-o", str(cubin), str(ROOT / "native" / "cuda" / f"{source}.cu")],
            ["nvdisasm", "-c", str(cubin)],
        ):
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=True)
            except FileNotFoundError:
                raise InputError(f"{command[0]} is not in the PATH: part of the CUDA toolkit") from None
            except subprocess.CalledProcessError as error:
                said = error.stderr.strip().splitlines() or ["no reason given"]
                raise InputError(f"{command[0]}: {said[0]}") from None
    return done.stdout


def measured() -> list:
    """The lines of the result table."""
    lines, read = [], {}
    for family, source, kernel, in_loop, byte in KERNELS:
        if source not in read:
            read[source] = bodies(disassemble(source))
        (body,) = (body for name, body in read[source].items() if kernel in name)
        found = count(main_loop(body) if in_loop else body)
        part = "loop" if in_loop else "whole"
        lines.append(dict(zip(COLUMNS, (family, kernel, part, found, byte, round(found / byte, 3)))))
    return lines


def families(lines) -> dict:
    """{family: mean over its kernels, to three digits}."""
    found = collections.defaultdict(list)
    for line in lines:
        found[line["family"]].append(float(line["instruction_per_byte"]))
    return {family: float(f"{statistics.fmean(values):.3g}") for family, values in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default=str(RESULT))
    options = parser.parse_args()
    lines, text = measured(), io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    write_text(options.output, text.getvalue())
    print(text.getvalue(), *(f"{family}: {value}\n" for family, value in families(lines).items()), sep="", end="")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
