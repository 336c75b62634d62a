"""Which of a kernel's parameters tell one workload from another: plain numbers do, addresses and padding do not."""

import struct
from dataclasses import replace

import pytest

from kernel_dvfs_step import nodes
from kernel_dvfs_step.nodes import types_of, values_of

ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::Adam<float, 4> >"
    "(at::native::List<4>, float const*, double, double, bool)"
)
MULTIPLY = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float>, std::array<char*, 2ul> >"
    "(int, at::native::BUnaryFunctor<float>, std::array<char*, 2ul>)"
)


@pytest.mark.parametrize(
    ("function", "types"),
    [
        ("add(float*, int)", ["float*", "int"]),
        (MULTIPLY, ["int", "at::native::BUnaryFunctor<float>", "std::array<char*, 2ul>"]),
        (
            "void f<g(int)::{lambda(float, int)#1}>(int, g(int)::{lambda(float, int)#1}, double const)",
            ["int", "g(int)::{lambda(float, int)#1}", "double"],
        ),
        ("f()", []),
        ("nvjet_sm90_tst_256x128", None),
        ("void f<operator<(int)>(int, g<operator< >)", None),
    ],
)
def test_types_are_read_from_a_name_as_far_as_it_tells_them(function, types):
    assert types_of(function) == types


def adam(rate, list_byte=b"\1" * 16, address=0x7F0000001000):
    parameters = list_byte + struct.pack("<Qdd?", address, rate, 0.9, True)
    return values_of(ADAM, parameters, [(0, 16), (16, 8), (24, 8), (32, 8), (40, 1)])


def test_a_rate_is_part_of_it_and_an_address_or_a_struct_is_not():
    bits = [struct.unpack("<Q", struct.pack("<d", value))[0] for value in (1e-3, 0.9)]
    assert adam(1e-3) == (*bits, 1)
    assert adam(1e-3) == adam(1e-3, b"\2" * 16, 0x7F0000009000)
    assert adam(1e-3) != adam(1e-4)


def test_padding_of_a_functor_of_eight_bytes_is_not():
    layout = [(0, 4), (4, 8), (16, 16)]
    one, other = (
        values_of(MULTIPLY, struct.pack("<i", 100) + padding + struct.pack("<f", 2.0) + bytes(20), layout)
        for padding in (b"\x5d\x01\x00\x00", b"\0\0\0\0")
    )
    assert one == other == (100,)


def test_a_name_without_types_counts_what_can_be_nothing_but_a_number():
    triton = struct.pack("<QQiiq", 0x7F0000001000, 0x55D000001000, 8192, 2, 1 << 20)
    layout = [(0, 8), (8, 8), (16, 4), (20, 4), (24, 8)]
    assert values_of("_forward", triton, layout) == (8192, 2), "8 bytes may be a number and padding"
    assert values_of("sm90_xmma", triton, layout, is_packed=True) == ()
    assert values_of("_forward", triton + bytes(32), [(0, 64)]) == ()


def test_a_persistent_product_of_another_size_differs_and_one_in_another_process_does_not(recording):
    """Two recordings are of two processes, with other addresses."""

    name = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN"

    def sizes(step):
        """Of the products with the grid that does not depend on the size."""
        found = [node for node in recording(step).nodes if node.function == name and node.grid == (2, 66, 1)]
        return {values_of(name, struct.pack(f"<{len(node.words)}Q", *node.words), [], True) for node in found}

    eager, triton = sizes("gpt_eager"), sizes("triton_kernel")
    assert len(eager) > len(triton) == 2 and triton < eager, "one grid, several sizes; those of both steps are the same"


@pytest.mark.parametrize("kind", ["long", "long long", "long const"])
def test_a_size_beyond_four_bytes_is_part_of_it(kind):
    """A step of five thousand million elements is not one of six."""
    for size in (5, 5 * 10**9, 6 * 10**9, 0x7F0000001000):
        assert values_of(f"void fill({kind})", struct.pack("<q", size), [(0, 8)]) == (size,)


@pytest.mark.parametrize("kind", ["unsigned long", "unsigned long long"])
def test_an_address_that_a_kernel_takes_as_a_number_is_not(kind):
    """uintptr_t and CUdeviceptr: another process has another one."""
    assert values_of(f"void load({kind})", struct.pack("<Q", 0x7F0000001000), [(0, 8)]) == ()
    assert values_of(f"void load({kind})", struct.pack("<Q", 1 << 20), [(0, 8)]) == (1 << 20,)


def test_types_that_do_not_fit_the_layout_tell_nothing():
    assert values_of("add(float*, int)", bytes(24), [(0, 8), (8, 8), (16, 8)]) == ()


def test_another_rate_is_another_step_and_another_address_is_not(recording):
    found = recording("conv").nodes
    valued = [replace(node, values=(7,)) for node in found]
    moved = [
        replace(node, words=tuple(word + 512 for word in node.words), address=node.address + 512) for node in found
    ]
    other = [*valued[:-1], replace(valued[-1], values=(8,))]
    assert nodes.checksum(valued) != nodes.checksum(other)
    assert nodes.checksum(found) == nodes.checksum(moved) != nodes.checksum(valued)


def test_what_a_memset_writes_is_part_of_it():
    about = {"type": 2, "target": 16, "byte": 4}
    (zero,), (one,) = (nodes.from_graph([about | {"value": value}], [])[0] for value in (0, 1))
    assert nodes.checksum([zero]) != nodes.checksum([one])
