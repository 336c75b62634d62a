"""The evidence for a board: what products tell of it, what the jackknife gives, that folds hold applications."""

import numpy as np
import pytest

from experiments.calibration import board, claims, top_of_curve
from experiments.calibration.points import measured_board
from kernel_dvfs.gpu import spec as specs


def test_the_a4000_computes_a_large_product_as_fast_as_a_real_one():
    gpu, (real,) = specs.resolve("rtx_a4000"), board.products("RTX A4000").values()
    rate, core_mhz = board.product_rate(gpu, 10240)
    assert rate == pytest.approx(real, rel=0.03)
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


def test_the_earlier_board_is_another_one_and_the_data_sets_own_but_for_what_nobody_measured():
    earlier, default = (specs.resolve(board.GPU, claims.overrides(name)) for name in ("earlier", "default"))
    fitted = measured_board(board.GPU)
    assert default == specs.resolve(board.GPU)
    for group in ("core", "memory"):
        assert earlier[group] == fitted[group] != default[group]
    assert earlier["energy_pj"]["tensor_bf16_flop"] == 0.75 > default["energy_pj"]["tensor_bf16_flop"]
    assert earlier["clocks"]["auto_core_mhz"] == 1930 < default["clocks"]["auto_core_mhz"]


def test_how_often_a_claim_holds_is_counted_over_the_studies_of_a_board():
    def row(board_name, seed, energy, held):
        verdicts = {number: "n" if number == "26" else "h" if int(number) in held else "d" for number in claims.CLAIMS}
        headline = dict.fromkeys(claims.HEADLINE, energy)
        return {"board": board_name, "seed": seed, **headline, **verdicts}

    rows = [row("default", "7", "-16.5", {1, 2, 5}), row("default", "9", "-18.25", {2}), row("earlier", "7", "-9", {2})]
    text = claims.summary(rows).splitlines()
    assert text[0] == "| claim | earlier board, 1 drawn | default board, 2 drawn |"
    assert text[2:5] == ["| 1 | differs | 1 of 2 |", "| 2 | holds | always |", "| 3 | differs | never |"]
    assert "| 26 | not testable | not testable |" in text
    assert "| **hold, mean (least to most)** | 1 (1 to 1) | 2 (1 to 3) |" in text
    assert "| repeated_energy_percent | -9 (-9 to -9) | -17.4 (-18.2 to -16.5) |" in text
    order = [line.split(",")[:2] for line in claims.written(rows).splitlines()[1:]]
    assert order == [["earlier", "7"], ["default", "7"], ["default", "9"]]
