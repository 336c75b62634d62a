"""The passes of an iteration split it without loss, at the boundary asked for."""

import pytest

from kernel_dvfs.workload.passes import BOUNDARIES, passes
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs_clocks.errors import InputError

RTX_3080_TI = (68.2e12, 34.1e12, 912e9)
H200 = (989.4e12, 66.9e12, 4800e9)


@pytest.fixture(scope="module")
def rows():
    return kernel_rows()


def totals(rows, members):
    """TFLOP, GB, roofline ms on RTX 3080 Ti and H200."""
    table = {row.id: row for row in rows}
    flop = byte = 0
    times = [0, 0]
    for id, repeat in members:
        row = table[id]
        moved = row.read_byte + row.write_byte
        flop += repeat * row.flop
        byte += repeat * moved
        for i, (tensor, fp32, dram) in enumerate((RTX_3080_TI, H200)):
            times[i] += repeat * max(row.tensor_flop / tensor, row.fp32_flop / fp32, moved / dram)
    return flop / 1e12, byte / 1e9, 1e3 * times[0], 1e3 * times[1]


def numbers(rows, members):
    table = {row.id: row.number for row in rows}
    return [table[id] for id, _ in members]


def test_llmc_turns_round_between_logits_and_classifier(rows):
    both = passes(rows)
    assert list(both) == ["forward", "backward"]
    assert numbers(rows, both["forward"]) == list(range(1, 16))
    assert numbers(rows, both["backward"]) == list(range(16, 47))


def test_the_layer_is_repeated_and_the_rest_is_not(rows):
    both = passes(rows)
    assert [repeat for _, repeat in both["forward"]] == 2 * [1] + 12 * [24] + [1]
    assert [repeat for _, repeat in both["backward"]] == 4 * [1] + 25 * [24] + 2 * [1]


@pytest.mark.parametrize(
    "name, tflop, gb, ms_3080_ti, ms_h200",
    [("forward", 115.832, 281.386, 1837.65, 152.31), ("backward", 231.662, 561.509, 3671.04, 303.80)],
)
def test_passes_do_the_published_work(rows, name, tflop, gb, ms_3080_ti, ms_h200):
    ours = totals(rows, passes(rows)[name])
    assert ours[0] == pytest.approx(tflop, abs=5.1e-4)
    assert ours[1] == pytest.approx(gb, abs=5.1e-4)
    assert ours[2] == pytest.approx(ms_3080_ti, abs=5.1e-3)
    assert ours[3] == pytest.approx(ms_h200, abs=5.1e-3)


def test_the_loss_may_join_forward(rows):
    both = passes(rows, "loss_forward")
    assert numbers(rows, both["forward"]) == list(range(1, 17))
    assert totals(rows, both["forward"])[0] == pytest.approx(115.857, abs=5.1e-4)
    assert totals(rows, both["backward"])[0] == pytest.approx(231.638, abs=5.1e-4)


def test_the_loss_may_be_a_pass_of_its_own(rows):
    three = passes(rows, "loss_separate")
    assert list(three) == ["forward", "loss", "backward"]
    assert numbers(rows, three["forward"]) == list(range(1, 15))
    assert numbers(rows, three["loss"]) == list(range(15, 20))
    assert numbers(rows, three["backward"]) == list(range(20, 47))


def test_logits_are_a_small_part_of_a_forward_pass_with_all_layers(rows):
    table = {row.id: row for row in rows}
    forward = passes(rows)["forward"]
    logits = table["loss_logits_gemm"].flop
    assert logits / sum(repeat * table[id].flop for id, repeat in forward) == pytest.approx(0.073, abs=5e-4)
    assert logits / sum(table[id].flop for id, _ in forward) == pytest.approx(0.65, abs=5e-3)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_passes_hold_every_launch_once_in_order(boundary):
    for rows in (
        kernel_rows(),
        kernel_rows(bias_split="llmc", sm_count=132, threads_per_sm=2048),
        kernel_rows("gpt3-125m", batch=3, tensor_parallel=4),
    ):
        joined = [member for members in passes(rows, boundary).values() for member in members]
        assert joined == [(row.id, row.multiplicity) for row in rows]


def test_an_unknown_boundary_is_answered_with_the_known_ones(rows):
    with pytest.raises(InputError) as refusal:
        passes(rows, "middle")
    assert str(refusal.value) == "boundary 'middle' is unknown: allowed are llmc, loss_forward, loss_separate"
