"""The band of the headline, and the map that it is taken from."""

from itertools import product

import pandas as pd
import pytest

from kernel_dvfs.report.figures import headline_map, surface
from kernel_dvfs.report.tables import headline_band


def saving(energy, traffic, mhz):
    return -(10 - 4 * energy - traffic + (1950 - mhz) / 45)


OWN_ENDS = {"overlap": 3, "auto_extra_power": 0.02}


class Made:
    """Results with a map of a plane: 10 % less 4 a pJ, 1 a multiple and 1 for 45 MHz."""

    subject, workload, procedure = "simulated Toy", {"name": "toy"}, ""

    def __init__(self, energies=(0.5, 0.9, 2.0)):
        rows = [
            {"tensor_energy_pj": energy, "gemm_traffic": traffic, "auto_core_mhz": mhz}
            | OWN_ENDS
            | {"is_default": (energy, traffic, mhz) == (0.9, 2.0, 1950)}
            | {"kernel_energy_change_percent": saving(energy, traffic, mhz), "pass_energy_change_percent": 0.0}
            for energy, traffic, mhz in product(energies, (1.0, 2.0, 4.0), (1905, 1950, 1995))
        ]
        # one end alone, and both at a corner
        alone = next(row for row in rows if row["is_default"]) | {"overlap": 5, "is_default": False}
        corner = rows[0] | {"overlap": 5, "auto_extra_power": 0.03}
        for row, more in ((alone, 0.7), (corner, 2.3)):
            row["kernel_energy_change_percent"] -= more
        self.headline_map = pd.DataFrame([*rows, alone, corner])


def test_the_band_is_least_and_most_over_what_varies():
    rows = headline_band(Made()).set_index(["level", "varied"])
    assert len(rows) == 10, "nothing of what auto draws alone"
    kernel = rows.loc["kernel"]
    assert set(kernel.default_energy_change_percent) == {saving(0.9, 2, 1950)}
    ends = {name: (row.low_energy_change_percent, row.high_energy_change_percent) for name, row in kernel.iterrows()}
    assert ends == {
        "all together": (saving(0.5, 1, 1905) - 2.3, saving(2.0, 4, 1995)),
        "tensor-core energy": (saving(0.5, 2, 1950), saving(2.0, 2, 1950)),
        "traffic of dense products": (saving(0.9, 1, 1950), saving(0.9, 4, 1950)),
        "highest clock at auto": (saving(0.9, 2, 1905), saving(0.9, 2, 1995)),
        "how far core and memory overlap": (saving(0.9, 2, 1950) - 0.7, saving(0.9, 2, 1950)),
    }
    assert kernel.points.to_dict() == {
        "all together": 29,
        "tensor-core energy": 3,
        "traffic of dense products": 3,
        "highest clock at auto": 3,
        "how far core and memory overlap": 2,
    }
    assert set(rows.loc["pass"].high_energy_change_percent) == {0.0}


def with_changes(made):
    found = made.headline_map
    own = found[(found.overlap == OWN_ENDS["overlap"]) & (found.auto_extra_power == OWN_ENDS["auto_extra_power"])]
    own = own.assign(change=lambda frame: frame.kernel_energy_change_percent)
    return own, own[own.is_default].iloc[0]


def test_contours_lie_where_the_change_is_their_value():
    ground, lines, _ = surface(*with_changes(Made()))
    for frame in (lines, ground):
        assert set(frame.auto_core_mhz) == {1905, 1950, 1995}
    four = lines[lines.line.str.contains(" -4.0 ")]
    assert len(four)
    for row in four.itertuples():
        assert saving(row.tensor_energy_pj, row.gemm_traffic, row.auto_core_mhz) == pytest.approx(-4.0, abs=1e-6)
    assert not lines.is_paper.any()  # 14.6 % is nowhere


def test_the_papers_value_is_a_line_where_it_is_reached():
    made = Made()
    made.headline_map["kernel_energy_change_percent"] -= 9
    _, lines, _ = surface(*with_changes(made))
    assert lines.is_paper.any()


def test_no_label_of_a_contour_lies_under_that_of_the_default():
    made = Made()
    traffic = made.headline_map.gemm_traffic
    made.headline_map["kernel_energy_change_percent"] = -10 + 2.9 * (traffic - 1.9)  # -10 runs through the label
    _, _, labels = surface(*with_changes(made))
    ten = labels[labels.text == "-10"].set_index("auto_core_mhz")
    assert abs(ten.loc[1950].tensor_energy_pj - 0.9) > 0.9
    # in other panels it stands in the middle
    assert ten.loc[1905].tensor_energy_pj == pytest.approx(1.25, abs=0.05)


def test_the_figure_says_whether_the_papers_value_is_reached(tmp_path):
    made = Made()
    assert "not reached anywhere here" in headline_map(made).labels.caption
    made.headline_map["kernel_energy_change_percent"] -= 9
    plot = headline_map(made)
    assert "the thick line" in plot.labels.caption
    plot.save(tmp_path / "map.png", verbose=False, dpi=50)
    assert (tmp_path / "map.png").stat().st_size > 5000


def test_a_single_clock_is_a_single_panel():
    made = Made()
    made.headline_map = made.headline_map[made.headline_map.auto_core_mhz == 1950]
    ground, _, _ = surface(*with_changes(made))
    assert set(ground.auto_core_mhz) == {1950}
