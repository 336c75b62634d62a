"""The CUDA kernels' code, seen without a GPU: accesses are as wide as their comments promise, and nothing spills.

A vector width is a fact of the compiled code, and a kernel that lost it still computes the right numbers.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ptx import broken_promises, entries, kernels, resources

CUDA = Path(__file__).resolve().parents[2] / "native" / "cuda"
SOURCES = sorted(CUDA.glob("*.cu"))

VECTOR = """
#include "kdvfs/pack.cuh"
// Doubles.
// {promise}
template <int Bytes>
__global__ void __launch_bounds__(64) double_kernel(const void *from, void *to) {{
  {body}
}}
template __global__ void double_kernel<16>(const void *, void *);
"""
WIDE = "kdvfs::store(to, 8 * threadIdx.x, kdvfs::load(from, 8 * threadIdx.x));"
NARROW = "static_cast<__nv_bfloat16 *>(to)[threadIdx.x] = static_cast<const __nv_bfloat16 *>(from)[threadIdx.x];"


@pytest.fixture(scope="session")
def ptx(to_ptx):
    """{source: its PTX} of all kernels, compiled in parallel."""
    with ThreadPoolExecutor() as pool:
        return dict(zip(SOURCES, pool.map(to_ptx, SOURCES)))


@pytest.fixture(scope="module")
def doubled(to_ptx, tmp_path_factory):
    """{body: the PTX of a kernel with it}, which does not depend on a promise, a comment."""
    source = tmp_path_factory.mktemp("ptx") / "double.cu"
    found = {}
    for body in (WIDE, NARROW):
        source.write_text(VECTOR.format(promise="", body=body), encoding="utf-8")
        found[body] = to_ptx(source)
    return found


@pytest.mark.compiles
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_kernel_accesses_memory_as_its_comment_promises(ptx, source):
    broken = broken_promises(source.read_text(encoding="utf-8"), ptx[source])
    assert not broken, "\n".join(broken)


@pytest.mark.compiles
def test_no_kernel_spills_or_has_a_stack_frame_on_any_architecture(cuda_results, ptx):
    used = resources((cuda_results / "native" / "cuda.log").read_text(encoding="utf-8"))
    compiled = {name for text in ptx.values() for name in entries(text)}
    assert {(name, sm) for name in compiled for sm in ("sm_80", "sm_86", "sm_90")} <= set(used)
    spilled = [
        f"{name} on {sm}: {stack} bytes of stack, spills {stores} stored and {loads} loaded"
        for (name, sm), (stack, stores, loads) in used.items()
        if stack or stores or loads
    ]
    assert not spilled, "\n".join(spilled)


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("promise", "body", "broken"),
    [
        ("ptx: ld.v4 st.v4", WIDE, None),
        ("ptx: ld.v4 st.v4", NARROW, "has no ld.v4 of 16 bytes"),
        ("ptx: none", NARROW, "accesses 2 bytes: ld.global"),
        ("ptx: none b16 - a test", NARROW, None),
        ("ptx: ld.v4 b16 - a test", WIDE, "nothing accesses 2 bytes"),
        ("wide", WIDE, "no `// ptx:` comment"),
    ],
)
def test_a_kernel_that_breaks_its_promise_is_caught(doubled, promise, body, broken):
    found = broken_promises(VECTOR.format(promise=promise, body=body), doubled[body])
    assert broken in found[0] if broken else found == []


@pytest.mark.compiles
def test_a_kernel_in_an_unnamed_namespace_is_caught(to_ptx, tmp_path):
    """Its name would hold a hash of the folder, and the same sources would no longer give the same library."""
    source = tmp_path / "hidden.cu"
    text = (
        "namespace {\n// ptx: none\n__global__ void hidden_kernel() {}\n}\nvoid run() { hidden_kernel<<<1, 1>>>(); }\n"
    )
    source.write_text(text, encoding="utf-8")
    (found,) = broken_promises(text, to_ptx(source))
    assert "unnamed namespace" in found


@pytest.mark.parametrize(
    ("promise", "complaint"),
    [
        ("ptx: ld.v8", "is none of"),
        ("ptx:", "is none of"),
        ("ptx: none ld.v4", "is none of"),
        ("ptx: ld.v4 b16", "without ` - ` and the reason"),
        ("ptx: ld.v4", "is not instantiated"),
    ],
)
def test_a_promise_must_be_understood(promise, complaint):
    (found,) = broken_promises(f"// {promise}\n__global__ void x_kernel() {{}}\n", "")
    assert complaint in found


def test_a_promise_belongs_to_the_kernel_directly_below_it():
    source = """
    // about __global__ functions
    // ptx: ld.v4
    __global__ void a_kernel(int n) {}
    // ptx: st.v4 b16 - tail
    template <int N,
              bool Tail>
    __global__ void __launch_bounds__(32 * (2 + 2), 1)
        b_kernel(int n) {}

    // ptx: none

    __global__ static void c_kernel(int n) {}
    """
    assert kernels(source) == {"a_kernel": "ld.v4", "b_kernel": "st.v4 b16 - tail", "c_kernel": None}


def test_a_kernel_whose_name_ends_like_anothers_is_told_apart():
    source = "// ptx: none\n__global__ void a_kernel() {}\n// ptx: ld.v4\n__global__ void a_kernel_tail() {}\n"
    ptx = ".entry _Z8a_kernelv() {}\n.entry _Z13a_kernel_tailv() { ld.global.nc.L1::no_allocate.v4.u32 }"
    assert broken_promises(source, ptx) == []


def test_the_assemblers_log_is_read():
    log = """
ptxas info    : Compiling entry function '_Z1av' for 'sm_80'
ptxas info    : Function properties for _Z1av
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers, 360 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1av' for 'sm_90'
ptxas info    : Function properties for _Z1av
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""
    assert resources(log) == {("_Z1av", "sm_80"): (8, 4, 12), ("_Z1av", "sm_90"): (0, 0, 0)}
