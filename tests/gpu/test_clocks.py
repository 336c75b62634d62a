import pytest

from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs_clocks import clocks
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError

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


def test_highest_requests_land_where_a_cool_board_allows(ti):
    assert clocks.reached_core_mhz(ti, Pair(2100, 9251), 100) == clocks.top_core_mhz(ti)
    assert clocks.reached_core_mhz(ti, Pair(210, 9251), 100) == 243
    assert clocks.reached_core_mhz(ti, Pair(1470, 9251), 100) == 1470
    assert clocks.reached_core_mhz(ti, BASELINE, 100) == ti["auto_core_mhz"]
    assert 1900 <= ti["auto_core_mhz"] <= clocks.top_core_mhz(ti) < 1970


def test_the_top_clock_falls_with_power_and_what_is_below_it_does_not():
    # the specimen of the public data set
    top = {"above_auto_mhz": 4, "mhz_per_w": 0.30, "above_w": 162}
    ti = resolve("rtx_3080_ti", {"clocks": {"auto_core_mhz": 1958, "top": top}})["clocks"]
    warm, hot = (clocks.reached_core_mhz(ti, Pair(2100, 9251), power_w) for power_w in (210, 320))
    assert clocks.top_core_mhz(ti) > warm > hot
    # 1950 MHz up to 210 W, 1885 to 1905 at the cap: gpu-model section 13
    assert warm == pytest.approx(1950, abs=7.5)
    assert 1885 <= clocks.reached_core_mhz(ti, BASELINE, 340) <= 1905
    assert clocks.reached_core_mhz(ti, Pair(1470, 9251), 340) == 1470
    assert clocks.asked_core_mhz(ti, Pair(2100, 9251)) == clocks.asked_core_mhz(ti, BASELINE) == clocks.top_core_mhz(ti)


def test_a_gpu_whose_top_is_not_known_runs_what_it_is_asked_for_at_any_power():
    h200 = resolve("h200_sxm")["clocks"]
    assert clocks.reached_core_mhz(h200, Pair(1980, 3201), 690) == clocks.reached_core_mhz(h200, BASELINE, 100) == 1980
