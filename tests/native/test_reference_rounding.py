"""How the C reference stores bf16: to nearest, ties to even; the gradients of the two tables stochastically."""

import numpy as np
import pytest
from oracles import bf16, random16, widen


def add_bf16(cpu, left, right):
    """left + right by an operation that is a bare sum."""
    settings = {"M": 1, "OC": len(left), "G": 1}
    return cpu.run("bias_backward", settings, {"dout": right[None, :], "dbias_in": left})["dbias_out"]


def test_stores_round_to_nearest_and_ties_to_even(cpu):
    cases = {
        # 1 has the even mantissa 0; its last kept bit is 2^-7
        (1.0, 2.0**-8): 1.0,  # tie, down to even
        (1.0 + 2.0**-7, 2.0**-8): 1.0 + 2.0**-6,  # tie, up to even
        (1.0, 2.0**-8 + 2.0**-15): 1.0 + 2.0**-7,  # just above the tie
        (1.0, 2.0**-8 - 2.0**-16): 1.0,  # just below
        (-1.0, -(2.0**-8)): -1.0,
        (-1.0 - 2.0**-7, -(2.0**-8)): -1.0 - 2.0**-6,
        (1.0 + 127 * 2.0**-7, 2.0**-8): 2.0,  # the carry runs into the exponent
    }
    left, right = (bf16([pair[side] for pair in cases]) for side in (0, 1))
    np.testing.assert_array_equal(widen(left), [pair[0] for pair in cases])
    np.testing.assert_array_equal(widen(right), [pair[1] for pair in cases])
    np.testing.assert_array_equal(widen(add_bf16(cpu, left, right)), list(cases.values()))


def test_stores_at_the_ends_of_the_range(cpu):
    largest, tiny = np.uint16(0x7F7F), np.uint16(0x0001)  # 3.39e38; the smallest subnormal
    half_step = bf16(2.0**119)  # half of the step at the largest number
    inf, nan = np.uint16(0x7F80), np.uint16(0x7FC0)
    left = np.array([largest, largest, tiny, tiny, inf, nan, inf], np.uint16)
    right = np.array([half_step, 0, tiny, 0x8001, 0, 0, 0xFF80], np.uint16)
    got = add_bf16(cpu, left, right)
    np.testing.assert_array_equal(got[:5], [inf, largest, 0x0002, 0, inf])
    assert np.isnan(widen(got[5:])).all()


def test_a_store_does_not_carry_a_nan_into_a_number(cpu):
    """The NaN of all ones would round up to -0; it reaches a store through a float32 input."""
    nan = np.array([[0x7FFFFFFF], [0]], np.uint32).view(np.float32)
    got = cpu.run("bias_reduce", {"OC": 1, "G": 2}, {"partials": nan, "dbias_in": bf16([1])})["dbias_out"]
    assert np.isnan(widen(got)).all()


def test_sums_of_random_pairs_are_rounded_as_the_model_rounds(cpu):
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 1 << 16, size=(2, 20_000), dtype=np.uint16)
    # exponents close together, so that sums need rounding rather than lose one side
    left, right = (bits & 0x83FF) | 0x3C00
    want = bf16(widen(left) + widen(right))
    exact = widen(left).astype(np.float64) + widen(right)
    assert np.mean(widen(want) != exact) > 0.3
    np.testing.assert_array_equal(add_bf16(cpu, left, right), want)


# --- stochastic rounding

COUNT = 40_000


def add_stochastically(cpu, op, start, step, seed, count=COUNT):
    """`count` times start + step, by the gradient of a table of one row."""
    settings = {"M": 1, "C": count, "seed": seed, **({"T": 1} if op == "wpe_backward" else {"V": 1})}
    table = op.removesuffix("_backward")
    tensors = {"dout": bf16(np.full((1, count), step)), f"d{table}_in": bf16(np.full((1, count), start))}
    if op == "wte_backward":
        tensors["ids"] = np.zeros(1, np.int32)
    return widen(cpu.run(op, settings, tensors)[f"d{table}_out"])[0]


@pytest.mark.parametrize("op", ["wpe_backward", "wte_backward"])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("fraction", [1 / 16, 1 / 4, 1 / 2, 15 / 16])
def test_the_upper_neighbour_is_taken_as_often_as_the_sum_is_close_to_it(cpu, op, sign, fraction):
    step = 2.0**-7  # between neighbours at 1
    got = add_stochastically(cpu, op, sign, sign * fraction * step, seed=1)
    assert set(np.abs(got)) == {1, 1 + step}
    deviation = np.sqrt(fraction * (1 - fraction) / COUNT)
    assert abs(np.mean(np.abs(got) != 1) - fraction) < 4 * deviation


def test_over_the_seeds_each_element_is_rounded_fairly(cpu):
    up = np.mean([add_stochastically(cpu, "wpe_backward", 1, 2.0**-9, seed, 50) != 1 for seed in range(2000)], axis=0)
    assert np.abs(up - 1 / 4).max() < 4.5 * np.sqrt(1 / 4 * 3 / 4 / 2000)


def test_neighbouring_elements_and_seeds_choose_independently(cpu):
    choices = np.array([add_stochastically(cpu, "wpe_backward", 1, 2.0**-8, seed, 4000) != 1 for seed in range(8)])
    for one, other in [(choices[:, 1:], choices[:, :-1]), (choices[1:], choices[:-1])]:
        assert abs(np.mean(one == other) - 1 / 2) < 4 * np.sqrt(1 / 4 / one.size)


@pytest.mark.parametrize("op", ["wpe_backward", "wte_backward"])
def test_a_sum_that_is_a_bf16_stays_that(cpu, op):
    for start, step in [(1, 2.0**-7), (-3, 1), (0, 0), (1, -1)]:
        assert set(add_stochastically(cpu, op, start, step, seed=2, count=1000)) == {start + step}


def test_the_choice_follows_the_elements_index_in_the_whole_table(cpu):
    """Each row has its own choices, the documented ones, whichever token brought the gradient."""
    V, C, seed = 5, 64, 0xFFFFFFFF
    ids = np.array([4, 1], np.int32)
    settings = {"M": 2, "V": V, "C": C, "seed": seed}
    tensors = {"ids": ids, "dout": bf16(np.full((2, C), 2.0**-8)), "dwte_in": bf16(np.ones((V, C)))}
    got = widen(cpu.run("wte_backward", settings, tensors)["dwte_out"])
    index = np.arange(V * C).reshape(V, C)[ids]
    np.testing.assert_array_equal(got[ids] != 1, 0x8000 + random16(index, seed) >= 0x10000)
    np.testing.assert_array_equal(got[[0, 2, 3]], 0)


def test_float32_tables_are_not_rounded(cpu):
    settings = {"M": 1, "T": 1, "C": 100, "seed": 1}
    tensors = {"dout": np.full((1, 100), 2.0**-20, np.float32), "dwpe_in": np.ones((1, 100), np.float32)}
    got = cpu.run("wpe_backward", settings, tensors, "float32")["dwpe_out"]
    np.testing.assert_array_equal(got, np.float32(1 + 2.0**-20))
