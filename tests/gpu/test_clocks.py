import pytest

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import clocks
from kernel_dvfs.gpu.clocks import AUTO, BASELINE, Pair
from kernel_dvfs.gpu.spec import resolve

GRID = {"core_mhz": {"step": 210}, "mem_mhz": "all", "auto": True}


@pytest.fixture(scope="module")
def ti():
    return resolve("rtx_3080_ti")["clocks"]


def test_the_papers_grid_on_the_3080_ti_keeps_57_of_66_pairs(ti):
    pairs, omitted = clocks.sweep_pairs(ti, GRID)
    assert (len(pairs), len(omitted)) == (57, 9)
    assert pairs[0] == BASELINE and len(set(pairs)) == 57


def test_what_is_left_out_is_the_folding_memory_clock_with_its_reason(ti):
    _, omitted = clocks.sweep_pairs(ti, GRID)
    assert {pair.mem_mhz for pair, _ in omitted} == {405}
    assert all(pair.core_mhz == AUTO or pair.core_mhz > 420 for pair, _ in omitted)
    assert all("810" in reason for _, reason in omitted)


def test_an_asked_for_folding_pair_runs_the_other_memory_clock(ti):
    assert clocks.applied_mem_mhz(ti, Pair(630, 405)) == 810
    assert clocks.applied_mem_mhz(ti, Pair(420, 405)) == 405
    assert clocks.applied_mem_mhz(ti, Pair(AUTO, 405)) == 810


def test_a_grid_is_relative_to_the_gpus_own_clocks():
    h200 = resolve("h200_sxm")["clocks"]
    pairs, omitted = clocks.sweep_pairs(h200, GRID)
    cores = sorted({pair.core_mhz for pair in pairs} - {AUTO})
    assert cores[0] == 345 and cores[1] == 555 and not omitted
    assert len(pairs) == (len(cores) + 1) * 3


def test_all_core_clocks_are_the_boards_own_list(ti):
    pairs, _ = clocks.sweep_pairs(ti, {"core_mhz": "all", "mem_mhz": [9251], "auto": False})
    assert len(pairs) == 1 + 127


@pytest.mark.parametrize(
    ("grid", "named"),
    [
        ({"core_mhz": [1471], "mem_mhz": "all", "auto": True}, "1471"),
        ({"core_mhz": [2115], "mem_mhz": "all", "auto": True}, "2115"),
        ({"core_mhz": [1470], "mem_mhz": [5000], "auto": True}, "5000"),
    ],
)
def test_a_clock_the_gpu_lacks_is_refused_by_name_with_what_is_allowed(ti, grid, named):
    with pytest.raises(InputError, match=named) as refused:
        clocks.sweep_pairs(ti, grid)
    assert "allowed" in str(refused.value)


@pytest.mark.parametrize("text", ["1470", "1470,5001,3", "fast,5001", "-5,auto", "0,auto", "1.5,auto"])
def test_clocks_that_are_no_clocks_are_refused(text):
    with pytest.raises(InputError):
        clocks.parse(text)


def test_a_pair_reads_back_from_its_label():
    for pair in (BASELINE, Pair(1470, AUTO), Pair(AUTO, 5001)):
        assert clocks.parse(clocks.label(pair), "-") == pair


def test_highest_requests_land_where_the_board_allows(ti):
    assert clocks.ceiling_core_mhz(ti, Pair(2100, 9251), 1935) == 1935
    assert clocks.ceiling_core_mhz(ti, Pair(210, 9251), 1935) == 243
    assert clocks.ceiling_core_mhz(ti, Pair(1470, 9251), 1935) == 1470
    assert clocks.ceiling_core_mhz(ti, BASELINE, 1935) == 1950
    assert 1920 < clocks.mean_top_core_mhz(ti) < 1965
