"""What a kernel's comment promises about its memory accesses, held against its PTX; and spills, from ptxas's log.

Directly above each __global__, in its comment: `// ptx: ld.v4 st.v4`: every instance of the kernel has 16-byte loads
and stores of global memory, and none of 2 bytes. `ld.v4` or `st.v4` may stand alone, `none` promises neither, and
`b16 - reason` allows accesses of 2 bytes.
"""

import re

WORDS = {
    "ld.v4": r"\bld\.global(\.[\w:]+)*\.(v4\.[busf]32|v2\.[busf]64)\b",
    "st.v4": r"\bst\.global(\.[\w:]+)*\.(v4\.[busf]32|v2\.[busf]64)\b",
    "b16": r"\.global(\.[\w:]+)*\.[busf]16\b",
}
ATTRIBUTE = re.compile(r"__(?:launch_bounds|cluster_dims|maxnreg|block_size)__\s*\((?:[^()]|\([^()]*\))*\)")


def kernels(source) -> dict:
    """{kernel: the text of its `// ptx:` comment, None without one}."""
    lines = source.splitlines()
    found = {}
    for i, line in enumerate(lines):
        instantiation = re.match(r"\s*template\s+__global__", line)
        if "__global__" in line.partition("//")[0] and not instantiation:
            declaration = ATTRIBUTE.sub("", "\n".join(lines[i : i + 10]).partition("__global__")[2])
            name = re.search(r"(\w+)\s*\(", declaration)[1]
            found[name] = _promise(lines[:i])
    return found


def _promise(lines) -> str | None:
    while lines and re.match(r"\s*(template|static|extern|inline|typename|int|bool)\b.*[^;{}]$", lines[-1]):
        lines = lines[:-1]  # what belongs to the declaration: template parameters, attributes
    comment = []
    while lines and lines[-1].lstrip().startswith("//"):
        comment.append(lines[-1].lstrip().removeprefix("//").strip())
        lines = lines[:-1]
    return next((line.removeprefix("ptx:").strip() for line in comment if line.startswith("ptx:")), None)


def entries(ptx) -> dict:
    """{mangled name: text of its body}, for every kernel instance of a PTX file."""
    parts = re.split(r"\.entry\s+([\w$]+)", ptx)
    return dict(zip(parts[1::2], parts[2::2]))


def broken_promises(source, ptx) -> list[str]:
    """One line for everything that a source file promises and its PTX does not keep."""
    promises = kernels(source)
    instances = {name: {} for name in promises}
    wrong = []
    for mangled, body in entries(ptx).items():
        if "_GLOBAL__N_" in mangled:
            wrong.append(
                f"{mangled}: stands in an unnamed namespace, so its name, and the library's bytes, hold a hash of the "
                "folder it lies in: move it out"
            )
        # a mangled name holds each part of the name after its length
        names = [name for name in promises if f"{len(name)}{name}" in mangled]
        if names:
            instances[max(names, key=len)][mangled] = body
        else:
            wrong.append(f"{mangled}: no __global__ of this name in the file")
    for name, promise in promises.items():
        wrong += [f"{name}: {line}" for line in _check(promise, instances[name])]
    return wrong


def _check(promise, instances) -> list[str]:
    if promise is None:
        return ["no `// ptx:` comment directly above it"]
    words, _, reason = promise.partition(" - ")
    words = words.split()
    if not words or not {*words} <= {"none", *WORDS} or ("none" in words and {"ld.v4", "st.v4"} & {*words}):
        return [f"`ptx: {promise}` is none of: none, ld.v4, st.v4, ld.v4 st.v4; then b16 - reason"]
    if "b16" in words and not reason.strip():
        return ["`b16` without ` - ` and the reason"]
    if not instances:
        return ["is not instantiated"]
    wrong = []
    for mangled, body in instances.items():
        wrong += [
            f"{mangled} has no {word} of 16 bytes"
            for word in ("ld.v4", "st.v4")
            if word in words and not re.search(WORDS[word], body)
        ]
        short = re.search(rf".*{WORDS['b16']}.*", body)
        if short and "b16" not in words:
            wrong.append(f"{mangled} accesses 2 bytes: {short[0].strip()}")
    if "b16" in words and not any(re.search(WORDS["b16"], body) for body in instances.values()):
        wrong.append("`b16` is promised, and nothing accesses 2 bytes")
    return wrong


def resources(log) -> dict:
    """{(function, architecture): (stack, spill stores, spill loads)} in bytes, from the output of `ptxas -v`."""
    found, architecture = {}, None
    for line in re.finditer(
        r"Compiling entry function '\S+' for '(?P<architecture>\w+)'"
        r"|Function properties for (?P<function>\S+)\s+(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill "
        r"stores, (?P<loads>\d+) bytes spill loads",
        log,
    ):
        if line["architecture"]:
            architecture = line["architecture"]
        else:
            found[line["function"], architecture] = tuple(int(line[key]) for key in ("stack", "stores", "loads"))
    return found
