"""Figures of a small made-up study: what they say, what they show, and that they are the same each time."""

import io
import shutil

import numpy as np
import pandas as pd
import plotnine as p9
import pytest
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.text import Text
from PIL import Image

from kernel_dvfs.cli import main
from kernel_dvfs.profile.store import COLUMNS, write_profile
from kernel_dvfs.report import carried, clock_plane, figures, labels
from kernel_dvfs.report.clock_plane import View
from kernel_dvfs.report.results import Results
from kernel_dvfs.report.write import write_figure
from kernel_dvfs.table_file import write_rows
from kernel_dvfs_clocks.errors import InputError

SUBJECT = "simulated Toy 1"
# that of a captured step shares its drawing with figures 3 and 4, and is drawn in tests/workflow/test_step_study.py
NAMES = tuple(name for name, each in figures.OUTPUTS.of("figure").items() if each.workload != "step")
DEFINITION = "fig2_desirability"
PASSES = "fig3_fig4_passes"
OF_KERNELS = "fig5_kernels"
# one command and one function write all; test_no_text_is_cut_off_or_covered draws each
WRITTEN = (DEFINITION, OF_KERNELS)
# core, mem, time and energy relative to auto, verdict
PASS = [
    (None, None, 1.00, 1.00, "ok"),
    (210, 405, 7.00, 1.40, "not_reached"),
    (420, 405, 5.00, 1.20, "ok"),
    (210, 5001, 4.00, 1.30, "ok"),
    (1050, 5001, 1.30, 0.75, "ok"),
    (1470, 5001, 1.10, 0.80, "ok"),
    (1890, 5001, 1.005, 0.90, "ok"),
    (2100, 5001, 0.99, 0.97, "throttled"),
    (1470, None, 1.20, 0.90, "ok"),
    (2100, None, 1.00, 0.99, "throttled"),
    (None, 5001, 0.98, 1.01, "ok"),
]
KERNELS = {
    "forward_gemm": {"row": 2, "section": "Forward", "name": "GEMM", "kind": "gemm"},
    "forward_bias": {"row": 1, "section": "Forward", "name": "Bias", "kind": "elementwise"},
    "backward_gemm": {"row": 3, "section": "Backward", "name": "GEMM", "kind": "gemm"},
}


def rows_of(study, target, points, time_s, energy_j):
    for core, mem, time, energy, verdict in points:
        row = dict.fromkeys(COLUMNS)
        row |= {"study": study, "target": target, "launches_per_iteration": 1, "core_mhz": core, "mem_mhz": mem}
        row |= {"time_s": time_s * time, "energy_j": energy_j * energy, "n": 1, "verdict": verdict}
        yield row | {"is_baseline": core is None and mem is None}


def write(folder, rows, gpu, workload):
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    for name in ("profile", "published"):
        write_profile(folder / f"{name}.parquet", columns, gpu, workload, ["core_mhz", "mem_mhz"])
    return Results(folder)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A results folder with a profile of passes and kernels, and the tables that figures draw."""
    folder = tmp_path_factory.mktemp("study")
    rows = [row for name in ("forward", "backward") for row in rows_of("pass", name, PASS, 2.0, 700.0)]
    for number, name in enumerate(KERNELS):
        rows += rows_of("kernel", name, PASS[:3], 1e-5 * 10**number, 1e-3 * 10**number)
    workload = {"name": "toy-b40-tp1", "batch": 40, "tensor_parallel": 1, "kernels": KERNELS}
    write(folder, rows, {"kind": "simulated", "name": "Toy 1", "slug": "sim-toy"}, workload)
    (folder / "tables").mkdir()
    slack, saved = [-1.0, 1e-7, 16.0], [-2.0, -8.0, -20.0]
    relaxed = {
        "slack_percent": slack * 2,
        "time_change_percent": slack * 2,
        "energy_change_percent": [*saved, None, *saved[:2]],
    }
    write_frame(folder / "tables/relaxed.json", pd.DataFrame(relaxed | {"scope": ["global"] * 3 + ["local"] * 3}))
    for table, column, values in (
        ("data_parallelism", "batch", [40, 20, 1]),
        ("tensor_parallelism", "tensor_parallel", [1, 2, 4]),
    ):
        write_frame(folder / f"tables/{table}.json", carried_table(column, values))
    return folder


def write_frame(path, frame):
    """Write a table's rows."""
    write_rows(path, frame.astype(object).to_dict("records"))


def carried_table(column, values):
    return pd.DataFrame(
        {
            column: values,
            "claimed_time_change_percent": [0.0, None, None],
            "claimed_energy_change_percent": [-8.0, None, None],
            "repeats": 7,
            "time_change_percent": [0.2, 0.3, 0.5],
            "time_low_percent": [0.1, 0.2, 0.4],
            "time_high_percent": [0.3, 0.4, 0.6],
            "energy_change_percent": [-7.5, -7.4, -6.0],
            "energy_low_percent": [-7.6, -7.5, -6.1],
            "energy_high_percent": [-7.4, -7.3, -5.9],
            "reoptimised_time_change_percent": [0.2, 0.1, 0.2],
            "reoptimised_time_low_percent": [0.1, 0.0, 0.1],
            "reoptimised_time_high_percent": [0.3, 0.2, 0.3],
            "reoptimised_energy_change_percent": [-7.5, -7.6, -6.5],
            "reoptimised_energy_low_percent": [-7.6, -7.7, -6.6],
            "reoptimised_energy_high_percent": [-7.4, -7.5, -6.4],
        }
    )


@pytest.fixture(scope="module")
def drawn(study):
    """The folder of figures after the command has drawn them."""
    for name in WRITTEN:
        assert main.main(["output", str(study), name]) == 0
    return study / "figures"


def plot_of(name, folder):
    return figures.OUTPUTS["figure", name].make(Results(folder))


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_says_whose_numbers_it_shows(name, study):
    assert SUBJECT.lower() in plot_of(name, study).labels.subtitle.lower()


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_says_whose_numbers_it_shows(name, drawn):
    with Image.open(drawn / f"{name}.png") as image:
        assert SUBJECT in image.text["Title"]
        assert SUBJECT in image.text["Description"]
    pdf = (drawn / f"{name}.pdf").read_bytes()
    assert b"(" + name.encode() + b" \\(" + SUBJECT.encode() in pdf
    assert b"CreationDate" not in pdf


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_names_units_and_the_direction_of_better(name, study):
    plot = plot_of(name, study)
    text = " ".join(str(plot.labels.get(key, "")) for key in ("x", "y", "subtitle"))
    assert "better:" in text.lower()
    # one sign: less is negative
    assert "negative: lost" not in text and "saved, %" not in text
    if name == "fig5_kernels":
        assert {"time, ms", "energy, J"} == set(plot.data.quantity)
    else:
        assert "%" in plot.labels.y
    if name.startswith("fig3"):
        assert "time over auto (logarithmic" in plot.labels.x
    elif not name.startswith(("fig5", "fig7", "fig8")):
        assert "%" in plot.labels.x


@pytest.mark.slow
def test_nothing_but_whole_figures_is_left_behind(drawn):
    assert sorted(path.name for path in drawn.iterdir()) == sorted(
        f"{n}.{form}" for n in WRITTEN for form in ("pdf", "png")
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [OF_KERNELS, *(pytest.param(n, marks=pytest.mark.nightly) for n in (DEFINITION, PASSES))]
)
def test_the_same_numbers_give_the_same_bytes(name, study, tmp_path):
    made = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        for profile in study.glob("*.parquet"):
            shutil.copy(profile, folder)
        assert main.main(["output", str(folder), f"figures/{name}"]) == 0
        made.append({path.name: path.read_bytes() for path in (folder / "figures").iterdir()})
    assert made[0] == made[1] and len(made[0]) == 2


def test_waste_discards_every_loss_and_ignores_time_gained():
    waste = figures.scores().query("rule == 'waste'")
    gain = (waste.time_change_percent <= 0) & (waste.energy_change_percent < 0)
    assert waste[~gain].score.isna().all()
    assert np.allclose(waste[gain].score, -waste[gain].energy_change_percent)


def test_edp_lets_energy_pay_for_time():
    assert figures.edp_score(0.1, -0.2) == pytest.approx(1 - 1.1 * 0.8)
    assert figures.edp_score(-0.2, 0.1) == figures.edp_score(0.1, -0.2)
    assert figures.waste_score(0.1, -0.2) == 0
    assert figures.waste_score(0.0, -0.2) == 0.2


def rectangles(panel):
    """(x, y, width, height) of what is filled or framed in a panel, in its own units."""
    shapes = [shape for shape in panel.collections if isinstance(shape, PolyCollection)]
    return [path.get_extents().bounds for shape in shapes for path in shape.get_paths()]


def test_the_square_holds_the_pairs_without_time_lost_that_save_energy(study):
    points = clock_plane.changes(Results(study), "forward")
    best = clock_plane.better_than_auto(points)
    # the most energy first; auto itself, and the fast pair that costs energy, are outside
    assert [(row.core_mhz, row.memory) for row in best.itertuples()] == [(2100, "5001 MHz"), (2100, "auto")]
    assert (best[clock_plane.Y] < 0).all() and (best[clock_plane.X] <= 0).all()
    plot = clock_plane.draw(Results(study), "forward")
    for view, panel in zip(clock_plane.views(points, None), plot.draw().axes, strict=True):
        square = (view.left, view.bottom, -view.left, -view.bottom)
        assert any(np.allclose(each, square) for each in rectangles(panel)), view
    assert "2 pairs" in plot.labels.caption and "core 2100, memory 5001 MHz" in plot.labels.caption


def test_every_pair_is_a_point_of_the_first_view_and_auto_of_both(study):
    points = clock_plane.changes(Results(study), "forward")
    shown = clock_plane.draw(Results(study), "forward").data
    every, near = shown.view.cat.categories
    assert every == f"all {len(PASS)} pairs" and (shown.view == every).sum() == len(PASS)
    assert shown[shown.is_baseline].view.nunique() == 2
    # what the view around auto leaves out is counted
    count = (shown.view == near).sum()
    assert near == f"around auto: {count} pairs, the other {len(PASS) - count} lie outside" and count < len(PASS)
    assert (shown[~shown.reached].fill == "white").all()
    assert list(points.memory.cat.categories) == ["405 MHz", "5001 MHz", "auto"]


@pytest.mark.slow
def test_time_over_auto_is_on_a_logarithmic_axis(study):
    points = clock_plane.changes(Results(study), "forward")
    assert (10 ** points[clock_plane.X]).tolist() == pytest.approx([time for _, _, time, _, _ in PASS])
    assert points[clock_plane.Y].tolist() == pytest.approx([100 * (energy - 1) for _, _, _, energy, _ in PASS])
    figure = clock_plane.draw(Results(study), "forward").draw()
    figure.savefig(io.BytesIO(), format="png")
    for panel in figure.axes:
        ticks, texts = panel.get_xticks(), [text.get_text() for text in panel.get_xticklabels()]
        assert len(ticks) >= 3 and "1" in texts
        assert [float(text) for text in texts] == pytest.approx([10**tick for tick in ticks], rel=1e-3)


def with_errors(study, folder, time_se, energy_se, more=()):
    """The forward pass of `study`, every row with these standard errors, as shares, and more rows."""
    rows = list(rows_of("pass", "forward", PASS, 2.0, 700.0))
    for row in rows:
        row |= {"time_se_s": time_se * row["time_s"], "energy_se_j": energy_se * row["energy_j"]}
    return write(folder, [*rows, *more], {"kind": "simulated", "name": "Toy 1", "slug": "sim-toy"}, {"name": "toy"})


def test_scatter_around_auto_is_a_box_so_that_noise_looks_like_noise(study, tmp_path):
    results = with_errors(study, tmp_path, 0.002, 0.02)
    points = clock_plane.changes(results, "forward")
    box = clock_plane.scatter(points)
    # two measurements of the same thing differ by the root of the sum of their variances
    assert box.time_percent == pytest.approx(2.236 * 0.2 * 2**0.5, rel=1e-3)
    assert box.energy_percent == pytest.approx(2.236 * 2 * 2**0.5, rel=1e-3)
    rng = np.random.default_rng(0)
    like_auto = pd.DataFrame(
        {
            clock_plane.X: np.log10(1 + rng.normal(0, 0.002, 20_000) - rng.normal(0, 0.002, 20_000)),
            clock_plane.Y: rng.normal(0, 2, 20_000) - rng.normal(0, 2, 20_000),
        }
    )
    assert clock_plane.beyond(like_auto, box).mean() == pytest.approx(0.05, abs=0.005)
    plot = clock_plane.draw(results, "forward")
    # 3 % less energy is less than the scatter, 1 % less time is more
    assert "2 pairs, 1 outside the box" in plot.labels.caption.replace("\n", " ")
    (_, near) = plot.draw().axes
    wide = np.log10(1 + box.time_percent / 100) - np.log10(1 - box.time_percent / 100)
    assert any(np.allclose(each[2:], (wide, 2 * box.energy_percent)) for each in rectangles(near))


def test_where_scatter_is_not_known_no_box_is_drawn_and_the_figure_says_so(study):
    points = clock_plane.changes(Results(study), "forward")
    assert clock_plane.scatter(points) is None
    for passes in (["forward"], ["forward", "backward"]):
        caption = clock_plane.draw(Results(study), *passes).labels.caption
        assert "No box: how far" in caption and "Grey box" not in caption


def test_of_two_passes_the_one_without_a_box_is_named(study, tmp_path):
    results = with_errors(study, tmp_path, 0.002, 0.02, rows_of("pass", "backward", PASS, 2.0, 700.0))
    caption = clock_plane.draw(results, "forward", "backward").labels.caption
    assert "Grey box: where" in caption and "No box (backward pass): how far" in caption


@pytest.mark.parametrize(
    ("limits", "ratios"),
    [((-0.05, 1.05), [1, 1.5, 2, 3, 5, 7, 10]), ((-0.0065, 0.0065), [0.99, 0.995, 1, 1.005, 1.01, 1.015])],
)
def test_ticks_of_the_time_axis_are_round_ratios(limits, ratios):
    assert [10**each for each in clock_plane.breaks(limits)] == pytest.approx(ratios)


def test_a_curve_ends_at_the_edge_of_its_view():
    view = View("", -1, 1, -1, 1)
    (piece,) = clock_plane.visible(np.array([[-3.0, 0.0], [0.0, 0.0], [0.0, 0.5]]), view)
    assert piece.tolist() == [[-1, 0], [0, 0], [0, 0.5]]
    assert clock_plane.visible(np.array([[-3.0, 2.0], [3.0, 2.0]]), view) == []
    there, back = clock_plane.visible(np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 0.9]]), view)
    assert there[-1][0] == back[0][0] == 1


# what is left of the pairs in a small study, beside auto
SMALL = {
    "auto only": [],
    "one core clock": [(1470, 9251, 1.1, 0.8, "ok")],
    "one core clock and auto": [
        (1470, 9251, 1.1, 0.8, "ok"),
        (1470, None, 1.08, 0.82, "ok"),
        (None, 9251, 1.01, 0.99, "ok"),
    ],
    "two core clocks": [(1470, 9251, 1.1, 0.8, "ok"), (1680, 9251, 1.05, 0.85, "ok")],
    "all far from auto": [(210, 405, 7.0, 1.4, "ok"), (420, 405, 6.0, 1.3, "ok")],
    "no core clock": [(None, 9251, 1.1, 0.9, "ok")],
    "one pair like auto": [(1470, 9251, 1.0, 1.0, "ok")],
}


@pytest.mark.slow
@pytest.mark.parametrize("pairs", SMALL.values(), ids=SMALL)
def test_a_pass_of_few_pairs_is_still_drawn_and_none_need_be_better_than_auto(pairs, tmp_path):
    results = write(
        tmp_path,
        list(rows_of("pass", "forward", [PASS[0], *pairs], 1.0, 1.0)),
        {"kind": "simulated", "name": "Toy 1", "slug": "sim-toy"},
        {"name": "toy"},
    )
    plot = clock_plane.draw(results, "forward")
    assert "no pair" in plot.labels.caption
    assert (plot.data.view == f"all {1 + len(pairs)} pairs").sum() == 1 + len(pairs)
    plot.draw()


@pytest.mark.slow
def test_pairs_that_all_beat_auto_are_drawn(tmp_path):
    pairs = [PASS[0], (1470, 9251, 0.99, 0.8, "ok"), (1680, 9251, 0.98, 0.85, "ok")]
    results = write(
        tmp_path,
        list(rows_of("pass", "forward", pairs, 1.0, 1.0)),
        {"kind": "simulated", "name": "Toy 1", "slug": "sim-toy"},
        {"name": "toy"},
    )
    plot = clock_plane.draw(results, "forward")
    assert "2 pairs" in plot.labels.caption
    plot.draw()


def test_labels_never_cover_each_other_or_a_point():
    points = np.random.default_rng(1).uniform(0, 1, (90, 2))
    wanted = pd.DataFrame({"x": points[:, 0], "y": points[:, 1], "label": [f"{n + 1000}" for n in range(90)]})
    size = (3.0, 2.0)
    placed = labels.place(wanted, points, [], (0, 1, 0, 1), size, apart=0)
    assert 10 < len(placed) < 90
    wide, high = 4 * 0.6 * labels.TEXT_PT / 72, 0.9 * labels.TEXT_PT / 72
    centres = placed[["x", "y"]].to_numpy() * size
    for number, centre in enumerate(centres):
        others = np.abs(np.delete(centres, number, 0) - centre)
        assert ((others[:, 0] >= wide) | (others[:, 1] >= high)).all()
        marks = np.abs(points * size - centre)
        assert ((marks[:, 0] >= wide / 2) | (marks[:, 1] >= high / 2)).all()
        # the point that is meant is the nearest one
        away = np.linalg.norm(np.maximum(marks - [wide / 2, high / 2], 0), axis=1)
        assert away.argmin() == int(placed.label.iloc[number]) - 1000


def test_curves_that_coincide_share_a_label():
    wanted = pd.DataFrame({"x": [0.5, 0.51], "y": [0.5, 0.5], "label": ["1470", "1470"]})
    assert len(labels.place(wanted, wanted[["x", "y"]].to_numpy(), [], (0, 1, 0, 1), (3, 2), apart=0.35)) == 1
    wanted["x"] = [0.4, 0.6]
    assert len(labels.place(wanted, wanted[["x", "y"]].to_numpy(), [], (0, 1, 0, 1), (3, 2), apart=0)) == 2


def test_kernels_are_shown_per_launch_by_kind(study):
    costs = figures.costs(Results(study))
    assert costs[costs.quantity == "time, ms"].value.tolist() == pytest.approx([0.1, 0.01, 1.0])
    assert costs[costs.quantity == "energy, J"].kind.tolist() == ["bias gradient", *["matrix product"] * 2]


def test_kernels_that_would_cover_each_other_are_one_point_with_their_number():
    values = [1.0, 1.01, 0.99, 50.0, 1.0]
    kinds = ["bias", "bias", "bias", "bias", "norm"]
    shares = [0.1, 0.2, 0.15, 0.5, 0.05]
    frame = pd.DataFrame(
        {"kind": kinds, "section": "Forward", "quantity": figures.TIME, "value": values, "share": shares}
    )
    drawn = figures.together(frame)
    assert drawn.share.tolist() == pytest.approx([0.45, 0.5, 0.05])
    assert drawn["count"].tolist() == [3, 1, 1] and drawn["count"].sum() == len(frame)
    assert drawn.value.tolist() == pytest.approx([1.0, 50.0, 1.0], rel=1e-3)


def test_the_figure_of_kernels_shows_all_of_them(study):
    plot = plot_of("fig5_kernels", study)
    for quantity in ("time, ms", "energy, J"):
        assert plot.data[plot.data.quantity == quantity]["count"].sum() == len(KERNELS)
    assert f"of {len(KERNELS)}." in plot.labels.caption
    assert plot.data.groupby("quantity", observed=True).share.sum().tolist() == pytest.approx([1, 1])
    words = set(plot.data.kind)
    assert not words & {"WTE", "WPE", "WTE & WPE", "GEMM"}


def test_kernels_of_a_table_need_no_section(tmp_path):
    rows = [row for name in ("covar::a", "covar::b", "nn") for row in rows_of("kernel", name, PASS[:2], 1e-3, 0.1)]
    gpu = {"kind": "table", "name": "RTX 3080 Ti", "slug": "table-x"}
    results = write(tmp_path, rows, gpu, {"name": "as-measured"})
    assert set(figures.costs(results).kind) == {"covar", "nn"}
    plot = figures.fig5_kernels(results)
    assert plot.labels.title == "covar: 67 % of the energy"
    assert plot.labels.subtitle == "RTX 3080 Ti, as-measured; better: left; at auto"
    assert "all, each launched once" in plot.labels.caption
    plot.draw()


def test_a_table_without_auto_rows_has_its_reference_named_in_figures(tmp_path):
    about = {"name": "as-measured", "reference": "1410,1215"}
    rows = list(rows_of("kernel", "nn", PASS[:2], 1e-3, 0.1))
    results = write(tmp_path, rows, {"kind": "table", "name": "X", "slug": "table-x"}, about)
    assert "left; at the reference 1410,1215" in figures.fig5_kernels(results).labels.subtitle
    (tmp_path / "tables").mkdir()
    relaxed = {"slack_percent": [0, 1], "scope": "global", "energy_change_percent": [-1, -2], "time_change_percent": 0}
    write_frame(tmp_path / "tables/relaxed.json", pd.DataFrame(relaxed))
    assert "faster than the reference 1410,1215" in figures.fig6_relaxed_waste(results).labels.x


def test_rows_of_table_1_are_known_in_a_measured_table(tmp_path):
    names = ("forward_gelu", "backward_gelu", "loss_softmax")
    rows = [row for name in names for row in rows_of("kernel", name, PASS[:2], 1e-3, 0.1)]
    results = write(tmp_path, rows, {"kind": "table", "name": "H200", "slug": "table-x"}, {"name": "as-measured"})
    costs = figures.costs(results)
    times = costs[costs.quantity == "time, ms"]
    assert times.kind.tolist() == ["GELU", "softmax", "GELU"]
    assert times.section.tolist() == ["Forward", "Loss calculation", "Backward"]


def test_a_table_has_no_pass_to_draw(tmp_path):
    rows = list(rows_of("kernel", "nn", PASS[:2], 1e-3, 0.1))
    results = write(tmp_path, rows, {"kind": "table", "name": "X", "slug": "table-x"}, {"name": "as-measured"})
    with pytest.raises(InputError, match="no pass 'forward'"):
        clock_plane.draw(results, "forward")


def test_the_claimed_change_of_energy_and_the_strict_points(study):
    plot = plot_of("fig6_relaxed_waste", study)
    assert "laimed" in plot.labels.title and "claimed" in plot.labels.y and "Claimed" in plot.labels.caption
    # the infeasible slack is absent, and so are those beyond what is shown
    assert plot.data.energy_change_percent.tolist() == [-2.0, -8.0, -2.0]
    assert plot.data.scope.tolist() == ["global"] * 2 + ["local"]
    texts = {text.get_text() for text in plot.draw().findobj(Text)}
    assert {"global (strict: -8.0 %)", "local (strict: -2.0 %)"} <= texts


def test_titles_of_carried_schedules_say_where_the_clocks_come_from(study):
    assert plot_of("fig7_data_parallelism", study).labels.title == "Clocks chosen at batch 40, used at other batches"
    assert plot_of("fig8_tensor_parallelism", study).labels.title == "Clocks chosen at degree 1, used at other degrees"


def test_a_carried_schedule_stands_beside_the_one_chosen_there(study):
    frame = carried.changes(carried_table("batch", [40, 20, 1]), "batch")
    assert frame.value.cat.categories.tolist() == [40, 20, 1]
    count = frame.groupby("series", observed=True).size()
    assert count.to_dict() == {carried.CARRIED: 6, carried.CHOSEN_THERE: 6, carried.CLAIMED: 2}
    assert frame[frame.series != carried.CLAIMED].low.notna().all()
    assert frame[frame.series == carried.CLAIMED].low.isna().all()
    assert frame[frame.series == carried.CLAIMED].change.tolist() == [0.0, -8.0]


@pytest.fixture(scope="module")
def papers(study, tmp_path_factory):
    """The study of the paper's GPU and workload, its strict choice measured again."""
    folder = tmp_path_factory.mktemp("papers") / "study"
    shutil.copytree(study, folder)
    rows = [row for name in ("forward", "backward") for row in rows_of("pass", name, PASS, 2.0, 700.0)]
    rows += [row for name in KERNELS for row in rows_of("kernel", name, PASS[:3], 1e-5, 1e-3)]
    workload = {"name": "gpt3-xl-b40-tp1", "batch": 40, "tensor_parallel": 1, "kernels": KERNELS}
    write(folder, rows, {"kind": "simulated", "name": "RTX 3080 Ti", "slug": "sim"}, workload)
    again = {"quantity": ["time", "energy"], "fresh_change_percent": [0.31, -7.9]}
    write_frame(folder / "tables/validation.json", pd.DataFrame(again))
    slack = np.arange(0.0, 31.0)
    relaxed = {"scope": "global", "slack_percent": slack, "energy_change_percent": -8 - slack}
    write_frame(folder / "tables/relaxed.json", pd.DataFrame(relaxed))
    return folder


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (DEFINITION, " 2"),
        (PASSES, "s 3 and 4"),
        ("fig5_kernels", " 5"),
        ("fig6_relaxed_waste", " 6"),
        ("fig7_data_parallelism", " 7"),
        ("fig8_tensor_parallelism", " 8"),
    ],
)
def test_a_figure_carries_the_papers_number(name, number, study):
    assert f"The paper's Figure{number}." in plot_of(name, study).labels.caption
    assert figures.OUTPUTS["figure", name].caption.startswith(f"Figure{number} of the paper: ")


def test_figures_3_and_4_say_what_the_paper_found_there(papers, study):
    told = "6 in the forward pass and none in the backward pass; about 2 % of energy saved by a pair a pass"
    assert f"The paper's Figures 3 and 4: {told}." in plot_of(PASSES, papers).labels.caption
    assert told not in plot_of(PASSES, study).labels.caption


def test_figure_6_has_the_papers_two_points_beside_the_choice_measured_again_and_ends_at_15_percent(papers, study):
    plot = plot_of("fig6_relaxed_waste", papers)
    assert plot.data.slack_percent.max() == 15
    (panel,) = plot.draw().axes
    points = {
        tuple(np.round(xy, 6))
        for mark in panel.collections
        if isinstance(mark, PathCollection)
        for xy in np.asarray(mark.get_offsets())
    }
    assert {(0.0, -15.64), (0.6, -14.6), (0.31, -7.9)} <= points
    assert "Diamond: the strict choice measured again." in plot.labels.caption
    assert "Stars: the paper's (-15.64 % claimed; -14.6 % at +0.6 % of time)." in plot.labels.caption
    assert "Star" not in plot_of("fig6_relaxed_waste", study).labels.caption


@pytest.mark.parametrize(("name", "own"), [("fig7_data_parallelism", 40), ("fig8_tensor_parallelism", 1)])
def test_figures_7_and_8_have_the_papers_point_where_it_was_chosen(name, own, papers, study):
    plot = plot_of(name, papers)
    star = plot.data[plot.data.series == carried.PAPERS].set_index("quantity")
    assert star.change.to_dict() == {"energy": -14.6, "time": 0.6} and set(star.value) == {own}
    assert "Star: the paper's, -14.6 % at +0.6 % of time, measured again." in plot.labels.caption
    assert carried.PAPERS not in set(plot_of(name, study).data.series)


def test_a_table_without_the_papers_value_has_no_star():
    assert carried.PAPERS not in set(carried.changes(carried_table("batch", [20, 10, 5]), "batch", 40).series)


def test_a_study_without_a_choice_anew_shows_none():
    table = carried_table("batch", [40, 20, 1]).filter(regex="^(?!reoptimised)")
    assert carried.CHOSEN_THERE not in set(carried.changes(table, "batch").series)


def test_a_caption_names_the_series_with_bars(study):
    caption = plot_of("fig7_data_parallelism", study).labels.caption
    assert caption == (
        "The paper's Figure 7. Means of 7 repeats, except what was claimed.\n"
        "Bars (carried over, chosen there): 95 % interval."
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_cut_off_or_covered(name, study, cut_off):
    assert cut_off(plot_of(name, study)) == []


def small_folder(study, folder, table, frame):
    """A results folder with the profile of `study` and one table."""
    shutil.copy(study / "profile.parquet", folder)
    (folder / "tables").mkdir()
    write_frame(folder / f"tables/{table}.json", frame)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("bars", [True, False])
def test_a_single_batch_is_drawn_with_or_without_bars(bars, study, tmp_path):
    table = carried_table("batch", [40, 20, 1])[:1]
    if not bars:
        table = table.filter(regex="change|batch|repeats")
    plot = plot_of("fig7_data_parallelism", small_folder(study, tmp_path, "data_parallelism", table))
    assert ("Bars" in plot.labels.caption) is bars
    plot.draw()


@pytest.mark.parametrize("scopes", [["global"], ["local"], ["global", "local"]])
def test_a_single_slack_is_a_point_of_each_scope(scopes, study, tmp_path):
    table = pd.DataFrame({"scope": scopes, "slack_percent": 5.0, "energy_change_percent": -2.0})
    plot = plot_of("fig6_relaxed_waste", small_folder(study, tmp_path, "relaxed", table))
    (panel,) = plot.draw().axes
    marks = [mark for mark in panel.collections if isinstance(mark, PathCollection)]
    assert sum(len(mark.get_offsets()) for mark in marks) == len(scopes)


def test_the_command_is_ready_before_plotnine_is(root):
    import subprocess
    import sys

    code = (
        "import sys; sys.path.insert(0, 'workflow'); import kernel_dvfs.cli.output;"
        "assert not {'plotnine', 'pandas', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


def test_pairs_that_are_all_alike_have_a_panel_to_be_drawn_in():
    alike = pd.DataFrame({clock_plane.X: [0.0, 1e-13, -1e-13], clock_plane.Y: [0.0, 1e-12, 0.0]})
    view = clock_plane._around("all pairs", alike)
    assert view.right - view.left > 1e-5 and view.top - view.bottom > 0.01


def test_a_name_is_drawn_as_it_stands_and_never_read_as_a_formula(tmp_path):
    frame = pd.DataFrame({"kernel": ["$b_{^$", "\\frac$x", "a"], "energy": [1.0, 2.0, 3.0]})
    plot = p9.ggplot(frame, p9.aes("kernel", "energy", fill="kernel")) + p9.geom_col() + p9.labs(title="$of_{^$")
    write_figure(plot, tmp_path, "names", "caption", SUBJECT)
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["names.pdf", "names.png"]
