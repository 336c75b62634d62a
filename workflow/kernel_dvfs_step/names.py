"""Short names of kernels, for tables and for files."""

from __future__ import annotations

import re
from collections.abc import Iterable

# words of C++ templates that say nothing about what a kernel does
_EMPTY = {
    "unaryfunctor",
    "binaryfunctor",
    "cudafunctor",
    "cudafunctoronself_add",
    "aunaryfunctor",
    "bunaryfunctor",
    "ops",
}
_LONGEST = 48


def short(function: str) -> str:
    """Return a demangled function's name for people: its own name, and of a template of torch what it is made for."""
    if function.startswith("_Z"):  # too long for the demangler
        return _mangled(function)
    plain = function.replace("(anonymous namespace)::", "").removeprefix("void ")
    path, _, arguments = plain.partition("<") if "<" in plain else plain.partition("(")
    base = path.split("::")[-1] or plain
    if base.startswith("nvjet"):
        # nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_bias_TNN: tile and layout tell it from the others
        parts = base.split("_")
        tile = next((part for part in parts if re.fullmatch(r"\d+x\d+", part)), "")
        return " ".join(part for part in ("nvjet", tile, parts[-1]) if part)
    words = re.findall(r"[A-Za-z_][A-Za-z0-9_]*", arguments)
    if re.fullmatch(r"Kernel\d*|device_kernel", base):
        return _cut(next((word for word in words if word not in ("cutlass", "kernel", "gemm")), base))
    generic = any(part in base for part in ("elementwise", "reduce_kernel", "multi_tensor"))
    made_for = next((word for word in words if _tells(word)), "") if generic else ""
    return _cut(f"{base} {made_for}".strip())


def _mangled(function: str) -> str:
    """Return the same of a name as the compiler wrote it: each of its words behind a count of its letters."""
    words, at = [], 0
    # S5_ stands for a word that was there before
    while match := re.compile(r"S[0-9A-Z]*_|(\d+)").search(function, at):
        at = match.end()
        if match[1]:
            words.append(function[at : at + int(match[1])])
            at += int(match[1])
    base = next((word for word in words if "Gemm" in word), words[1] if len(words) > 1 else function)
    return _cut("grouped " * any(word.startswith("GroupProblem") for word in words) + base)


def _tells(word: str) -> bool:
    """Return whether a word among a template's arguments names an operation: GeluCUDAKernelImpl does, BinaryFunctor
    not."""
    lowered = word.lower()
    ends = lowered.endswith(("impl", "functor", "ops", "_kernel_cuda")) and lowered not in _EMPTY
    return ends and not any(part in lowered for part in ("elementwise", "gpu_kernel", "launch"))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def slug(text: str) -> str:
    """Return the lower-case letters, digits and underscores of a text, at most 40: part of an id."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:40].strip("_") or "kernel"


def unique(wanted: Iterable[str]) -> list[str]:
    """Return the names in order, a number behind those that stand more than once: mm, mm_2, mm_3."""
    seen: dict[str, int] = {}
    used: set[str] = set()
    names = []
    for name in wanted:
        seen[name] = seen.get(name, 0) + 1
        tried = name if seen[name] == 1 else f"{name}_{seen[name]}"
        while tried in used:
            seen[name] += 1
            tried = f"{name}_{seen[name]}"
        used.add(tried)
        names.append(tried)
    return names
