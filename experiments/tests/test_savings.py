"""What simulated boards say one should do agrees with measured boards: best clocks, savings, products of all sizes."""

import numpy as np
import pytest

from experiments.calibration import products, savings
from experiments.calibration.energy import read_sweep
from kernel_dvfs.gpu import spec as specs


@pytest.mark.parametrize(("gpu", "board", "use"), savings.HOPPER)
def test_hopper_boards_have_the_least_energy_where_public_sweeps_have_it_and_energies_within_5_percent(gpu, board, use):
    spec = specs.resolve(gpu)
    locked = [point for point in read_sweep(savings.SWEEPS, board, use) if not point.capped_share]
    kernel = savings.product(spec, next(point for point in locked if point.core_mhz == savings.LOCK_MHZ))
    assert len(locked) >= 4
    for point in locked:
        assert savings.at(spec, kernel, round(point.core_mhz)).power_w == pytest.approx(point.power_w, rel=0.051)
    assert abs(savings.best_clock_mhz(spec, kernel) - 1005) <= 60


def test_the_documented_table_of_boards_is_that_of_the_result_file(root):
    table = savings.REPORT.read_text("utf-8").partition("real / simulated\n")[2].strip()
    assert table in (root / "docs/simulated-gpu.md").read_text("utf-8")
    assert table.count("\n") == 11 and savings.one_table([]).splitlines()[2:] == table.splitlines()[-3:]


def test_a_table_says_what_is_not_judged_and_of_which_quantity_an_error_is():
    known, nothing = savings.Verdict(1.26, 2.34, -5.61, -7.89, "1005"), savings.Verdict(*[np.nan] * 4, "1110")
    rows = savings.one_table(
        [
            savings.Row("A", "3 kernels", "left out", known._replace(strict=-6.66), known),
            savings.Row("B", "a product", "fitted", nothing, nothing._replace(power=1.04)),
        ]
    ).splitlines()
    assert rows[2] == "| A | 3 kernels | left out | 1.3, 2.3 | -6.7 / -5.6 | -7.9 / -7.9 | 1005 / 1005 |"
    assert rows[3] == "| B | a product | fitted | power 1.0 | not judged | not judged | 1110 / 1110 |"
    assert {line.split(" | ")[0] for line in rows[4:]} == {"| B200 SXM", "| GB200", "| RTX A4000"}


def test_smoothing_keeps_a_power_law_and_takes_out_scatter():
    mhz = np.arange(510.0, 1411.0, 15)
    law = np.stack([3.1 * mhz**-0.7, 0.2 * mhz**0.4])
    scatter = np.exp(np.random.default_rng(1).normal(0, 0.01, law.shape))
    assert savings.smooth(mhz, law) == pytest.approx(law, rel=0.004)
    assert np.std(np.log(savings.smooth(mhz, law * scatter) / law)) < 0.006


def test_the_a100_saves_about_what_applications_of_a_real_one_save(measured):
    board = savings.read_board(measured("a100_ttu.csv").parent, "A100 SXM")
    family = board.spec["families"]["gemm"]
    kernels, _ = savings.fit_times(board, (family["overlap"],), family["memory_exponent"])
    table, every = savings.simulated(board, savings.with_powers(board, kernels)), np.arange(25)
    for slack, off in ((0.0, 4.0), (0.02, 2.0)):
        real, found = (
            each.change(each.energy_j, every, each.choose(each.time_s, each.energy_j, every, slack))
            for each in (board.truth, table)
        )
        assert real < 0 and found < 0 and found == pytest.approx(real, abs=off)


def test_products_from_1e9_flop_on_take_what_they_take_on_an_h200_within_8_percent(measured):
    table, spec = products.Products(measured("h200_gemm_auto.csv")), specs.resolve(products.GPU)
    for low in (1e9, 1e10, 1e11, 1e12):
        which = np.flatnonzero((table.flop >= low) & (table.flop < 10 * low))[::3]
        time_ms, _ = products.simulate(spec, table, which)
        assert np.abs(time_ms / table.time_ms[which] - 1).mean() < 0.08, low


def test_large_products_that_were_watched_for_a_second_draw_what_they_draw_on_an_h200(measured):
    table, spec = products.Products(measured("h200_gemm_auto.csv")), specs.resolve(products.GPU)
    is_fit = (table.flop >= 1e11) & (table.time_ms >= products.WATCHED_MS) & (table.n * table.k < products.FRESH)
    which = np.flatnonzero(is_fit)[::3]
    _, power_w = products.simulate(spec, table, which)
    assert len(which) > 100 and np.abs(power_w / table.power_w[which] - 1).mean() < 0.02
