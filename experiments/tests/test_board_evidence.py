"""The evidence for a board: what products tell of it, what the jackknife gives, that folds hold applications."""

import numpy as np
import pytest

from experiments.calibration import board, top_of_curve
from kernel_dvfs.gpu import spec as specs


def test_the_a4000_computes_a_large_product_as_fast_as_a_real_one():
    """55.9 TFLOP/s, bf16, dense, 10240 cubed (GitHub, zzc0721/torch-performance-test-data, issue 97)."""
    gpu = specs.resolve("rtx_a4000")
    rate, core_mhz = board.product_rate(gpu, 10240)
    assert rate == pytest.approx(55.9, rel=0.03)
    assert core_mhz < gpu["clocks"]["auto_core_mhz"] - 300, "its power limit is what holds it"


def test_the_default_board_computes_a_large_product_as_fast_as_public_ones_and_one_of_more_energy_does_not():
    rates = [rate for (_, n), rate in board.products("RTX 3080 Ti").items() if n == 10240]
    assert len(rates) == 4
    low, high = min(rates), max(rates)
    default, costly = specs.resolve(board.GPU), specs.resolve(board.GPU, {"energy_pj": {"tensor_bf16_flop": 1.3}})
    assert low <= board.product_rate(default, 10240)[0] <= high
    assert board.product_rate(costly, 10240)[0] < low


def test_a_product_that_fills_its_last_wave_by_half_takes_as_long_as_a_full_one():
    cool = specs.resolve(board.GPU, {"energy_pj": {"tensor_bf16_flop": 0.01}, "memory": {"gemm_traffic": 1}})
    whole, half = (board.product_rate(cool, n)[0] for n in (10240, 5120))
    # 40 waves of 80 tiles; 800 tiles are 10 waves: full as well. 2048: 128 tiles in two waves of 80
    assert half == pytest.approx(whole, rel=0.05)
    assert board.product_rate(cool, 2048)[0] == pytest.approx(0.8 * whole, rel=0.05)


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.array([3.0, -1.0, 4.5, 0.25, 9.0])
    without = [np.delete(values, place).mean() for place in range(len(values))]
    assert top_of_curve.jackknife(without) == pytest.approx(values.std(ddof=1) / np.sqrt(len(values)))
    assert np.isnan(top_of_curve.jackknife([1.0]))


def test_kernels_of_an_application_share_a_fold_and_folds_are_of_like_size():
    of = np.array(list("aaabbcddddefghh"))
    for seed in range(5):
        folds = top_of_curve.folds_by_application(of, seed)
        assert all(len(set(folds[of == name])) == 1 for name in of)
        sizes = np.bincount(folds, minlength=top_of_curve.FOLDS)
        assert sizes.min() > 0 and sizes.max() - sizes.min() <= 4
    assert (top_of_curve.folds_by_application(of, 0) != top_of_curve.folds_by_application(of, 1)).any()
