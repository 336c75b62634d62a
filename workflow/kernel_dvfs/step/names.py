"""Short names of kernels, for tables and for files."""

from __future__ import annotations

import re
from collections.abc import Iterable

# words of C++ templates that say nothing about what a kernel does
_EMPTY = {
    *("void", "at", "native", "cuda", "kernel", "detail", "anonymous", "namespace", "internal", "lambda", "functor"),
    *("operator", "const", "unsigned", "int", "float", "long", "bool", "double", "std", "c10", "bfloat16", "half"),
    *("array", "function", "type", "instance", "impl", "launch", "auto", "static", "char", "gpu", "nocast", "tensor"),
}
_LONGEST = 48


def short(function: str) -> str:
    """A demangled function's name for people: its own name, and of a template of torch what it is made for."""
    plain = function.replace("(anonymous namespace)::", "").removeprefix("void ")
    base = re.split(r"[<(]", plain, maxsplit=1)[0].split("::")[-1] or plain
    if base.startswith("nvjet"):
        # nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_bias_TNN: tile and layout tell it from the others
        parts = base.split("_")
        tile = next((part for part in parts if re.fullmatch(r"\d+x\d+", part)), "")
        return " ".join(part for part in ("nvjet", tile, parts[-1]) if part)
    made_for = [word for word in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", plain[len(base) :]) if _tells(word, base)]
    generic = ("elementwise" in base or "reduce_kernel" in base or "multi_tensor" in base) and made_for
    return _cut(f"{base} {made_for[0]}" if generic else base)


def _tells(word: str, base: str) -> bool:
    said = word.lower()
    telling = said.endswith(("impl", "functor", "ops", "op")) or "kernel_cuda" in said or "kernel" in said
    return telling and said not in _EMPTY and word != base and "elementwise" not in said and len(word) > 4


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def slug(text: str) -> str:
    """Lower-case letters, digits and underscores of a text, at most 40: part of an id."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:40].strip("_") or "kernel"


def unique(wanted: Iterable[str]) -> list[str]:
    """The names in order, a number behind those that stand more than once: mm, mm_2, mm_3."""
    seen: dict[str, int] = {}
    used: set[str] = set()
    found = []
    for name in wanted:
        seen[name] = seen.get(name, 0) + 1
        tried = name if seen[name] == 1 else f"{name}_{seen[name]}"
        while tried in used:
            seen[name] += 1
            tried = f"{name}_{seen[name]}"
        used.add(tried)
        found.append(tried)
    return found
