"""The top of the curve: its constants are found again from what they made, and kernels fall into the right classes."""

from dataclasses import replace

import pytest
from test_fit import read, write_table

from experiments.calibration.constants import label, values, with_values
from experiments.calibration.fit import fit
from experiments.calibration.points import (
    CORE_BOUND,
    DEEPLY_CAPPED,
    LATENCY_BOUND,
    NEAR_CAP,
    STREAMING,
    class_of,
    measured_board,
    of_kernels,
    power_w,
)
from experiments.calibration.top import contrasts, fit_top, is_top, top_constants
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import Kernel
from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs_clocks.clocks import AUTO, BASELINE


@pytest.fixture(scope="module")
def shipped() -> dict:
    return measured_board("rtx_3080_ti")


@pytest.fixture(scope="module")
def points(shipped, tmp_path_factory):
    return read(write_table(tmp_path_factory.mktemp("made") / "made.csv", shipped), shipped)


def test_a_row_at_the_top_is_compared_with_the_kernels_next_clock_at_the_same_memory(shipped, points):
    rows = contrasts(points, shipped)
    assert {row.top.pair.core_mhz for row in rows} == {AUTO, 2100}
    for row in rows:
        assert row.top.kernel == row.below.kernel
        assert row.below.pair.core_mhz in (1890, 1755), "the next below it, unless the cap held that"
        assert row.below.pair.mem_mhz == (9251 if row.top.pair == BASELINE else row.top.pair.mem_mhz)


def test_launches_too_short_to_be_a_load_say_nothing_of_auto(shipped, points):
    tiny = points.kernels.index("tiny")
    short = replace(points, auto_below=[replace(p, time_s=6e-6) for p in points.auto_below if p.kernel == tiny])
    assert [row for row in contrasts(short, shipped) if row.top.pair == BASELINE] == []
    assert any(row.top.kernel == tiny for row in contrasts(short, shipped)), "locked ones do"


def test_constants_of_the_top_are_found_again(shipped, tmp_path):
    constants = top_constants(shipped)
    moved = [1930.0, 12.0, 0.4, 180.0, 1.66, 0.03, 336.0]
    assert len(moved) == len(constants)
    truth = with_values(shipped, constants, moved)
    points = read(write_table(tmp_path / "moved.csv", truth), shipped)
    known = fit(replace(points, below=[p for p in points.below if not is_top(truth, p)]), truth, constants=False)
    found = values(fit_top(points, shipped, known.kernels), constants)
    for constant, value, true in zip(constants, found, moved, strict=True):
        assert value == pytest.approx(true, rel=0.02), label(shipped, constant)


def test_a_gpu_without_a_known_top_has_no_constants_there():
    a100 = resolve("a100_sxm")
    assert top_constants(a100) == []


def test_points_of_some_kernels_keep_their_rows_under_new_numbers(points):
    few = of_kernels(points, [3, 1])
    assert few.kernels == [points.kernels[3], points.kernels[1]]
    assert [p.pair for p in few.below if p.kernel == 0] == [p.pair for p in points.below if p.kernel == 3]
    assert len(few.auto) == 2


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Kernel(4e-3, 0.4e-3, 1e-5, 3, 0.10, 0.005), CORE_BOUND),
        (Kernel(0.2e-3, 0.1e-3, 8e-4, 3, 0.01, 0.004), LATENCY_BOUND),
        (Kernel(4e-3, 0.4e-3, 1e-5, 3, 0.13, 0.005), NEAR_CAP),
        (Kernel(4e-3, 0.4e-3, 1e-5, 3, 0.40, 0.01), DEEPLY_CAPPED),
        (Kernel(0.3e-3, 2e-3, 5e-5, 3, 0.03, 0.13), STREAMING),
    ],
)
def test_a_kernel_is_classed_by_what_holds_it_back_at_auto(shipped, kernel, expected):
    auto = settle(shipped, [(kernel, 1)], BASELINE, shipped["thermal"]["reference_c"])
    assert class_of(shipped, kernel, auto.power_w) == expected


def test_the_made_kernels_are_of_several_classes(shipped, points):
    found = fit(points, shipped, constants=False)
    auto = {p.kernel: power_w(p) for p in points.auto}
    assert len({class_of(shipped, kernel, auto[number]) for number, kernel in enumerate(found.kernels)}) >= 3
