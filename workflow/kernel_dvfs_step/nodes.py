"""The nodes of a captured graph, as plain records: what grouping works on, from a GPU or from a recorded list."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernel_dvfs.workload import step as steps
from kernel_dvfs_clocks.errors import InputError

# numbers of CUgraphNodeType that are no kernel, memset or copy
_TYPES = {
    0: "kernel",
    1: "copy",
    2: "memset",
    3: "host",
    4: "graph",
    5: "empty",
    6: "wait",
    7: "record",
    8: "semaphore",
    9: "semaphore",
    10: "alloc",
    11: "free",
    12: "memory operation",
    13: "conditional",
}
# why a step that holds such a node is refused, and what to do
_REFUSED = {
    "host": "it calls a function on the host in the middle (a host node); take callbacks out of the step",
    "conditional": "its control flow is decided on the GPU (a conditional node); capture one branch of it",
    "alloc": "it allocates memory while it runs (a memory node); switch the cudaMallocAsync allocator off "
    "(PYTORCH_CUDA_ALLOC_CONF) and allocate before the step",
    "free": "it frees memory while it runs (a memory node); switch the cudaMallocAsync allocator off "
    "(PYTORCH_CUDA_ALLOC_CONF) and keep the tensors",
    "graph": "it holds another graph (a child graph node); capture the step without replaying a graph in it",
}
_COPIED = ("kernel", "memset", "copy", "empty")
# where drivers of 64-bit Linux put what neither torch's allocator nor a parameter's value explains
_ADDRESSES = range(0x7000_0000_0000, 0x8000_0000_0000)
# parameters of these types are one number, all of whose bits are set by the caller. Structs are not: what lies between
# their members is whatever the stack held, and differs from one capture to the next
_NUMBERS = {"int", "unsigned int", "long", "unsigned long", "long long", "unsigned long long", "short"}
_NUMBERS |= {"unsigned short", "float", "double", "bool", "char", "signed char", "unsigned char"}
# kernels whose block of parameters holds no padding: two processes on an H200 gave the same bits, addresses apart
_WHOLE_BLOCKS = ("nvjet",)
# the types that programs keep addresses in as numbers (uintptr_t, CUdeviceptr); those with a sign hold none
_MAYBE_ADDRESS_TYPES = {"unsigned long", "unsigned long long"}
# a word in this range may be an address of host or device, where no type says that it is none
_MAYBE_ADDRESSES = range(1 << 32, 1 << 48)


@dataclass(frozen=True, slots=True)
class Node:
    """One node."""

    kind: str  # kernel, memset, copy, or what else it is
    function: str  # of a kernel, as the driver names it (mangled); of all else the kind
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    cluster: tuple[int, int, int] = (0, 0, 0)
    shared_byte: int = 0
    words: tuple[int, ...] = ()  # the kernel's parameters, 8 bytes each; the last one may be of fewer
    values: tuple[int, ...] = ()  # bits of the parameters that are plain numbers; of a memset, what it writes
    address: int = 0  # what a memset or copy writes to
    byte: int = 0  # how much
    is_host: bool = False  # a copy from or to the host's memory
    from_host: bool = False  # from it
    after: tuple[int, ...] = ()  # places of the nodes that it waits for
    programmatic: bool = False  # it may start before one of those has ended

    @property
    def shape(self) -> tuple[int, ...]:
        """How a kernel is launched; of all else its bytes."""
        return (*self.grid, *self.block, *self.cluster, self.shared_byte) if self.kind == "kernel" else (self.byte,)


def from_graph(
    nodes: Sequence[dict[str, Any]],
    edges: Iterable[tuple[int, int, bool]],
    demangled: Callable[[str], str] = str,
) -> tuple[list[Node], list[int]]:
    """Return (nodes that do something, the place of each in the graph), of what the extension's Captured says.

    demangled: writes a function's name as C++ does, which tells the types of its parameters.
    Edges through empty nodes, which do nothing, are kept as edges between what lies before and after them. Raises
    InputError where a node cannot be run again by itself at all: host, conditional and memory nodes, child graphs.
    """
    kinds = [_TYPES.get(about["type"], f"type {about['type']}") for about in nodes]
    for kind in kinds:
        if kind not in _COPIED:
            raise InputError(f"step: {_REFUSED.get(kind, f'it holds a node ({kind}) that cannot be run by itself')}")
    before: list[set[int]] = [set() for _ in nodes]  # in places of the graph
    programmatic: set[int] = set()
    for source, target, early in sorted(edges, key=lambda edge: edge[1]):
        before[target] |= before[source] if kinds[source] == "empty" else {source}
        if early:
            programmatic.add(target)
    places = [place for place, kind in enumerate(kinds) if kind != "empty"]
    new = {place: number for number, place in enumerate(places)}
    records = [
        _node(
            kinds[place], nodes[place], tuple(sorted(new[at] for at in before[place])), place in programmatic, demangled
        )
        for place in places
    ]
    return records, places


def _node(
    kind: str, about: dict[str, Any], after: tuple[int, ...], programmatic: bool, demangled: Callable[[str], str]
) -> Node:
    if kind != "kernel":
        more = {"address": about["target"], "byte": about["byte"]}
        more |= {name: about.get(name, False) for name in ("is_host", "from_host")}
        values: tuple[int, ...] = (about["value"],) if "value" in about else ()
        return Node(kind, kind, values=values, after=after, **more)
    shape = {name: about[name] for name in ("grid", "block", "cluster", "shared_byte")}
    function, parameters = about["function"], about["parameters"]
    numbers = values_of(demangled(function), parameters, about.get("layout", ()), about.get("is_packed", False))
    words = words_of(parameters)
    return Node(kind, function, **shape, words=words, values=numbers, after=after, programmatic=programmatic)


def values_of(
    function: str, parameters: bytes, layout: Sequence[tuple[int, int]], is_packed: bool = False
) -> tuple[int, ...]:
    """Return the bits of the parameters that are plain numbers: sizes, strides, rates, factors. No addresses, no
    structs.

    function: demangled. layout: (offset, bytes) of each parameter. C++ names tell the types; other names (Triton's)
    do not, and there every parameter of 4 bytes counts: what is larger may be a struct with padding. Matrix products of
    cuBLAS come as one block, whose words count, since they are persistent: their grid is the same for every size.
    """
    types = types_of(function)
    if types is None:
        if is_packed and function.startswith(_WHOLE_BLOCKS):
            return tuple(word for word in words_of(parameters) if word not in _MAYBE_ADDRESSES)
        if is_packed or "(" in function:
            return ()
        numbers = [size == 4 for _, size in layout]
    elif len(types) == len(layout):
        numbers = [kind in _NUMBERS for kind in types]
    else:
        return ()
    values = []
    for place, (offset, size) in enumerate(layout):
        bits = int.from_bytes(parameters[offset : offset + size], "little")
        is_number = types is not None and types[place] not in _MAYBE_ADDRESS_TYPES
        if numbers[place] and (is_number or bits not in _MAYBE_ADDRESSES):
            values.append(bits)
    return tuple(values)


def types_of(function: str) -> list[str] | None:
    """Return the types of a function's parameters, of its name as C++ writes it; None where it does not tell them."""
    depth, begin = 0, -1
    if not function.endswith(")"):
        return None
    for begin in range(len(function) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(function[begin], 0)
        if depth == 0:
            break
    parts, depth = [""], 0
    for letter in function[begin + 1 : -1].replace("->", "  "):
        depth += {"(": 1, "<": 1, "{": 1, "[": 1, ")": -1, ">": -1, "}": -1, "]": -1}.get(letter, 0)
        if depth < 0:
            return None
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip().removesuffix(" const") for part in parts if part.strip()] if depth == 0 else None


def words_of(parameters: bytes) -> tuple[int, ...]:
    """Return a kernel's parameters as words of 8 bytes, little-endian, the last one filled up with zeros."""
    padded = parameters + bytes(-len(parameters) % 8)
    return struct.unpack(f"<{len(padded) // 8}Q", padded)


def is_address(word: int, segments: Sequence[tuple[int, int]]) -> bool:
    """Return whether a parameter's word is an address: in a segment (address, bytes) of the allocator, or where drivers
    map memory. A word of two small numbers is neither, unless the upper one lies between 28672 and 32767."""
    return word in _ADDRESSES or any(begin <= word < begin + size for begin, size in segments)


def checksum(nodes: Iterable[Node], names: dict[str, str] | None = None) -> str:
    """Return the checksum of the nodes in order (workload.step.checksum). names: what to call a function instead
    (demangled)."""
    known = names or {}
    return steps.checksum(
        (node.kind, known.get(node.function, node.function), (*node.shape, *node.values)) for node in nodes
    )


def most_unordered(nodes: Sequence[Node]) -> int:
    """Return how many nodes may run at once, counted level by level: 1 is a chain."""
    level: list[int] = []
    for node in nodes:
        level.append(1 + max((level[at] for at in node.after), default=-1))
    return max((level.count(depth) for depth in set(level)), default=0)


def to_json(nodes: Iterable[Node]) -> list[dict[str, Any]]:
    """Return a node list for a file: a dict a node, without what is at its default."""
    empty = asdict(Node("", ""))
    return [{key: value for key, value in asdict(node).items() if value != empty[key]} for node in nodes]


def from_json(content: Iterable[dict[str, Any]]) -> list[Node]:
    """Return the nodes of such a list."""
    nodes = []
    for entry in content:
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
        }
        nodes.append(Node(**fields))
    return nodes
