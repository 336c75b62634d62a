"""The numbers of a page that are no table's own: totals, counts, shares, a fleet's day, ticks; and how cells show."""

import json

import pytest
from made_up_study import KERNELS, POINTS, made_up
from page_reader import Page, numbers
from PIL import Image

from kernel_dvfs.choice.schedule import choose
from kernel_dvfs.layout import STRICT
from kernel_dvfs.profile.store import read_profile, write_profile
from kernel_dvfs.report.page import schedule_page
from kernel_dvfs.report.page.study_page import make
from kernel_dvfs.report.page.tables import duration, energy_in_words, plain
from kernel_dvfs.table_file import read_rows, write_rows

STEP = {"step": {"checksum": "0badb24fa668"}}
STEP_TOTALS = {"step": "as a whole", "time_ms": 20.48, "energy_j": 14.1, "power_w": 688.4, "power_cap_share": 0.93}
STEP_TOTALS |= {"kernels": 7, "launches": 161, "kernels_of_80_percent": 4}
STEP_KERNELS = [
    {"row": row, "name": f"k{row}", "energy_per_step_j": 3 - row / 4, "power_w": 600.5, "section": "forward"}
    for row in range(7)
]
LAUNCHES = {"forward_gemm": 5, "forward_gelu": 2, "backward_gemm": 3}
CORES = {"forward_gemm": 1470, "forward_gelu": None, "backward_gemm": 1470}  # of the strict schedule


def page_of(folder, **grid) -> Page:
    return Page(make(folder, **grid)[0])


def launched(path, to=None, **changed):
    """A profile whose kernels are launched LAUNCHES times an iteration, with other columns changed, in place of the one
    that is there."""
    table, about, _ = read_profile(path)
    columns = {name: table[name].to_pylist() for name in table.column_names} | changed
    of_target = zip(columns["target"], columns["launches_per_iteration"])
    columns["launches_per_iteration"] = [LAUNCHES.get(target, count) for target, count in of_target]
    write_profile(to or path, columns, about["gpu"], about["workload"], about["settings"])
    return to or path


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study with launches of different counts, a wide figure, two claims alike, and a table that nobody knows."""
    folder = made_up(tmp_path_factory.mktemp("results") / "sim-toy-1/toy-b40-tp1")
    for name in ("profile", "published"):
        launched(folder / f"{name}.parquet")
    for name, width in (("fig5_kernels", 900), ("fig6_relaxed_waste", 1000)):
        Image.new("RGBA", (width, 500), (0, 0, 0, 0)).save(folder / f"figures/{name}.png")
    claims = read_rows(folder / "tables/claims.json")
    write_rows(folder / "tables/claims.json", [claims[0], claims[0] | {"claim": "c"}, claims[0] | {"verdict": "holds"}])
    write_rows(folder / "tables/values.json", VALUES)
    return folder


@pytest.fixture(scope="module")
def page(study):
    return page_of(study, usd_per_kwh=0.125, co2_g_per_kwh=400)


# --- of a study -------------------------------------------------------------------------------------------------------


def test_how_much_was_measured_and_in_what_order_it_is_told(page):
    assert page.facts["measured"] == "3 kernels, 1 pass, 3 clock pairs" and "3 kernels × 3 clock pairs" in page.text
    assert page.said["provenance"].endswith(f"page written {page.facts['page written']}")
    assert "records 7 " in page.said["provenance"] and " seed 7 " in page.said["provenance"]
    shown = [each for each in page.ids if each in ("kernels", "choosing", "passes", "published", "claims", "measured")]
    assert shown == ["kernels", "choosing", "published", "claims", "measured"]
    assert page.tables["claims"][0][:3] == ["number", "verdict", "claim"]
    assert {"2 differs", "1 holds"} <= page.badges
    sizes = {image["width"]: (image["height"], image["figure"]) for image in page.images}
    assert sizes == {"336": ("240", None), "432": ("240", None), "480": ("240", "wide")}


def test_a_day_of_a_fleet_is_priced_as_the_reader_asks(page, study):
    # 2153.138 J in 6.371338 s; 1000 GPUs and 24 h; -7.226 %
    told = {name: page.said[name] for name in ("kwh", "money", "kg")}
    assert told == {"kwh": "-586", "money": "-73", "kg": "-234"}
    assert "GPU draws 338 W" in page.said["fleet"] and "measured again (simulated)" in page.said["fleet"]
    unpriced = page_of(study).said
    assert unpriced["kwh"] == "-586" and "money" not in unpriced and "kg" not in unpriced


@pytest.mark.parametrize("weights", ["counts", "raw", "equal-time"])
def test_totals_and_shares_are_of_the_weights_that_chose(study, weights):
    path = study / f"schedules/{STRICT}.json"
    kept = path.read_text()
    path.write_text(json.dumps(json.loads(kept) | {"weights": weights}))
    try:
        page = page_of(study)
    finally:
        path.write_text(kept)
    totals = {"counts": "one training iteration takes", "raw": "all kernels, each launched once, take"}
    first = page.said["answer"]
    assert [name for name, words in totals.items() if f"{words} 6.371 s and 2153 J" in first] == (
        [weights] if weights in totals else []
    )
    assert ("fleet" in page.said) == (weights == "counts")
    columns, _ = page.tables["chosen_clocks"]
    if weights == "equal-time":
        assert "energy_share_percent" not in columns and "kernels_by_saving" not in page.tables
        return
    auto = {name: POINTS[name][None] for name in KERNELS}
    count = LAUNCHES if weights == "counts" else dict.fromkeys(LAUNCHES, 1)
    shares = {
        column: {
            name: 100 * count[name] * auto[name][place] / sum(count[each] * auto[each][place] for each in KERNELS)
            for name in KERNELS
        }
        for place, column in enumerate(("time_share_percent", "energy_share_percent"))
    }
    rows = {row["id"][0]: row for row in page.rows("chosen_clocks")}
    for column, wanted in shares.items():
        assert {name: float(row[column][0]) for name, row in rows.items()} == pytest.approx(wanted)
    part = "part_of_the_saving_pp"
    for name, row in rows.items():
        change = float(row["energy_change_percent"][0])
        assert float(row[part][0]) == pytest.approx(shares["energy_share_percent"][name] * change / 100)
    brief = page.rows("kernels_by_saving")
    parts = [float(row[part][0]) for row in brief]
    assert parts == sorted(parts) and brief[0]["id"][0] == "forward_gemm"


def test_a_real_board_s_page_has_no_seed_of_noise(tmp_path):
    page = page_of(made_up(tmp_path / "toy-1a2b3c4d/toy-b40-tp1", kind="nvml"))
    assert " seed " not in page.said["provenance"] and "UUID GPU-1a2b3c4d" in page.said["provenance"]


@pytest.mark.parametrize("is_chosen", [False, True])
def test_a_step_s_first_screen_has_its_costliest_kernels_until_clocks_are_chosen(tmp_path, is_chosen):
    measured = {} if is_chosen else {"clocks": "auto-only"}
    folder = made_up(tmp_path / "toy-1a2b3c4d/step-train", "nvml", fresh=is_chosen, more=STEP, **measured)
    write_rows(folder / "tables/step_totals.json", [STEP_TOTALS])
    write_rows(folder / "tables/step_kernels.json", STEP_KERNELS)
    page = page_of(folder)
    totals = "the kernels of one step, each measured alone, take 6.371 s and 2153 J together"
    assert (totals in page.said["answer"], "costliest" in page.tables) == (is_chosen, not is_chosen)
    assert "iteration" not in page.said, "a step says so itself, as a whole"
    if not is_chosen:
        assert [row["name"][1] for row in page.rows("costliest")] == [f"k{row}" for row in range(5)]
        assert page.tables["costliest"][0] == ["name", "energy_per_step_j", "power_w"], "and words alike above"


def test_what_an_iteration_takes_at_auto_is_the_sum_over_its_launches(tmp_path):
    folder = made_up(tmp_path / "toy-1a2b3c4d/toy-b40-tp1", "nvml", fresh=False, clocks="auto-only")
    launched(folder / "profile.parquet")
    # 5 x 1.1 + 2 x 0.9 + 3 x 1.185669 s; 5 x 400 + 2 x 276.569 + 3 x 400 J
    assert numbers(page_of(folder).said["iteration"])[:3] == [
        (10.86, pytest.approx(0.005)),
        (3753.0, pytest.approx(0.5)),
        (345.7, pytest.approx(0.05)),
    ]


def test_records_are_told_by_campaign_sweeps_first_and_sizes_in_their_order(tmp_path):
    folder = made_up(tmp_path / "toy-1a2b3c4d/toy-b40-tp1", "nvml", fresh=False)
    kept = folder / "measurements/kernel/forward_gemm/auto-auto/r0.json"
    whole = json.loads(kept.read_text())
    for place, run in (
        ("kernel/forward_gemm/auto-auto/r1", {"campaign": "remeasure-1"}),
        ("pass/forward/auto-auto/r0", {}),
        *((f"{size}/forward_gemm", {"setup": "0" * 12}) for size in ("tp-2", "batch-10", "batch-5")),
        ("kernel/forward_gemm/auto-auto/.r2", {}),
    ):
        path = folder / f"measurements/{place}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(whole | {"run": whole["run"] | run}))
    page = page_of(folder)
    sweeps = [["sweep of the kernels", "6", "6"], ["sweep of the kernels, repeated", "1", "1"]]
    others = ["sweep of the passes", "batch 5", "batch 10", "tensor-parallel degree 2"]
    rows = [[text for _, text in row][:3] for row in page.tables["records"][1] if row]
    assert rows == [*sweeps, *([name, "1", "1"] for name in others)]
    assert "Mixed settings" not in page.text, "other sizes have setups of their own"
    assert page.facts["power limit"] == "700 W" and page.facts["kind"] == "real" and page.facts["host"] == "node1"


# --- how a cell is shown ----------------------------------------------------------------------------------------------

USUAL = {"kernel": "k", "way": "one way for all", "repeats": 10, "why": "short", "is_default": False, "core_mhz": 1470}
USUAL |= {"fresh_change_percent": 0.236, "fresh_low_percent": 0.159, "fresh_high_percent": 0.313, "gone": None}
USUAL |= {"share_percent": 12.346, "gap_points": 0.014, "optimism_pp": 0.4, "slack_percent": 0.6, "count": 12}
USUAL |= {"one_change_percent": -0.5, "one_low_percent": -0.75}
USUAL |= {"power_w": 360.2, "energy_mj": 999.5, "time_us": 20.5, "verdict": "ok", "gpu": "Toy"}
VALUES = [USUAL | {"kernel": f"k{number}"} for number in range(22)]
VALUES += [
    USUAL | {"kernel": "a", "why": "w" * 41, "is_default": True, "core_mhz": "auto", "fresh_change_percent": -0.004},
    USUAL | {"kernel": "b", "fresh_low_percent": None, "share_percent": -0.5, "power_w": 12345.678, "time_us": 1000.0},
    USUAL | {"kernel": "c", "power_w": 0.0165432, "gap_points": None, "count": 0, "verdict": "not_reached"},
]


def test_a_cell_is_shown_as_its_column_is_read(page):
    rows = page.rows("values")
    usual, a, b, c = ({name: text for name, (_, text) in row.items()} for row in (rows[0], *rows[-3:]))
    assert usual == {
        "kernel": "k0",
        "why": "short",
        "is_default": "no",
        "core_mhz": "1470",
        "fresh_change_percent": "+0.24 (+0.16 to +0.31)",
        "share_percent": "12.35",
        "gap_points": "0.01",
        "optimism_pp": "+0.40",
        "slack_percent": "0.6",
        "count": "12",
        "one_change_percent": "−0.50",
        "one_low_percent": "−0.75",
        "power_w": "360.2",
        "energy_mj": "999.5",
        "time_us": "0.02050",
        "verdict": "ok",
    }
    changed = (
        (a, {"kernel": "a", "why": "w" * 41, "is_default": "yes", "core_mhz": "auto"}),
        (b, {"kernel": "b", "fresh_change_percent": "+0.24", "share_percent": "-0.50", "power_w": "12346"}),
        (c, {"kernel": "c", "power_w": "0.01654", "gap_points": "–", "count": "0", "verdict": "not reached"}),
    )
    a.pop("fresh_change_percent")
    for row, told in changed:
        assert row == {name: text for name, text in usual.items() if name in row} | told | (
            {"time_us": "1.000"} if row is b else {}
        )


def test_numbers_have_four_digits_that_count_in_the_unit_that_they_are_read_in():
    assert (duration(1), duration(0.99994), duration(-0.5)) == ("1.000 s", "999.9 ms", "−500.0 ms")
    assert (energy_in_words(1), energy_in_words(0.00046), energy_in_words(1234.4)) == ("1.000 J", "0.4600 mJ", "1234 J")
    assert [plain(value) for value in (0, 1000, 999.94, 0.0001, 0.00009, 1e7, 9999999)] == [
        *("0", "1000", "999.9", "0.0001000", "9e−05", "1e+07", "9999999")
    ]


def test_a_column_says_what_it_holds_and_what_is_alike_stands_above_a_long_table(page):
    kinds = page.kinds["values"]
    of_kind = {kind: [name for name, each in kinds.items() if each == kind] for kind in set(kinds.values())}
    assert of_kind["long"] == ["why"] and of_kind["verdict"] == ["verdict"]
    assert of_kind["text"] == ["kernel", "is_default"] and len(of_kind["number"]) == 12
    assert "In every row: way one way for all; repeats 10." in page.text
    with_interval = {name for name, heading in page.headings["values"].items() if heading.endswith(" (95 % interval)")}
    assert with_interval == {"fresh_change_percent"}, "one end is no interval"
    assert sorted(page.folded) == ["chosen_clocks", "kernel_clocks", "relaxed", "values"] and "25 rows" in page.text
    assert 'class="sortable" data-table="values"' in page.html, "a table of few sentences is no stack of them"


# --- of a profile and a schedule alone --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profile(study):
    return launched(study / "profile.parquet", study / "p.parquet")


def of_schedule(profile, again=None, **asked) -> Page:
    return Page(schedule_page.make(profile, choose(str(profile), **asked), again))


def in_numbers(page, name) -> list:
    return [value for value, _ in numbers(page.said[name])]


def test_repeats_of_a_schedule_are_counted_with_mean_and_interval_beside_the_claim(profile):
    unchecked = of_schedule(profile)
    assert "checked" not in unchecked.said and "limit" not in unchecked.said
    once = of_schedule(profile, ([-8.25], [-0.63]))
    claimed_energy, claimed_time = in_numbers(once, "checked")[2::2]
    assert in_numbers(once, "checked") == [1, -8.25, claimed_energy, -0.63, claimed_time] and "limit" not in once.said
    # 12.706 standard errors, of half the difference of two repeats, on both sides of the mean
    twice = of_schedule(profile, ([-8.25, -8.05], [-0.63, -0.43]))
    energy, time = [-8.15, -9.42, -6.88, claimed_energy], [-0.53, -1.8, 0.74, claimed_time]
    assert in_numbers(twice, "checked") == [2, *energy, *time] and "limit" in twice.said


def of_iteration(place, clocks=None):
    """Joules (1) or seconds (0) of each kernel's launches in an iteration, at {kernel: core clock, None at auto}."""
    return {name: LAUNCHES[name] * POINTS[name][clocks and clocks[name]][place] for name in KERNELS}


def test_each_kernel_of_a_schedule_has_its_share_of_what_is_saved(profile):
    page = of_schedule(profile, slack_percent=0.5)
    rows = {row["targets"][0]: row for row in page.rows("kernels_by_saving")}
    chosen = {name: None if (core := row["core_mhz"][0]) == "auto" else float(core) for name, row in rows.items()}
    before, after = of_iteration(1), of_iteration(1, chosen)
    saved = {name: before[name] - after[name] for name in KERNELS}
    assert len({*chosen.values()}) > 1 and list(rows) == sorted(rows, key=lambda name: -saved[name])
    for column, wanted in (
        ("share_of_the_saving_percent", {name: 100 * saved[name] / sum(saved.values()) for name in KERNELS}),
        ("energy_change_percent", {name: -100 * saved[name] / before[name] for name in KERNELS}),
        ("baseline_energy_j", before),
        ("baseline_time_s", of_iteration(0)),
    ):
        assert {name: float(row[column][0]) for name, row in rows.items()} == pytest.approx(wanted), column
    assert page.rows("stops")[0]["takes"][0]
    weighed = of_schedule(profile, weights="equal-time")
    assert "baseline_energy_j" not in weighed.tables["kernels_by_saving"][0], "weighted, it is no joules"
    assert not weighed.rows("stops")[0]["takes"][0]


def test_a_schedule_at_auto_shares_no_saving(study, tmp_path):
    is_auto = read_profile(study / "profile.parquet").table["is_baseline"].to_pylist()
    dearer = [1.0 if each else 1.5 for each in is_auto]
    page = of_schedule(launched(study / "profile.parquet", tmp_path / "p.parquet", energy_j=dearer))
    assert {row["share_of_the_saving_percent"][0] for row in page.rows("kernels_by_saving")} == {"0.0"}
    assert {row["core_mhz"][0] for row in page.rows("kernels_by_saving")} == {"auto"}


@pytest.mark.parametrize(("mean", "half"), [(-8, 0.02), (-8, 0.3), (-20, 1.0), (-50, 12.0), (-3, 30.0)])
def test_the_ticks_of_a_chart_are_a_few_round_numbers_about_all_that_is_drawn(profile, mean, half):
    page = of_schedule(profile, ([mean - half, mean + half], [-half / 3, half / 3]))
    *_, low_energy, high_energy, _, _, low_time, high_time, _ = in_numbers(page, "checked")
    drawn = {name: [numbers(row[name][0])[0][0] for row in page.rows("stops")] for name in ("time", "energy")}
    for anchor, place, ends in (
        ("middle", 0, [low_time, high_time, *drawn["time"]]),
        ("end", 1, [low_energy, high_energy, *drawn["energy"]]),
    ):
        ticks = [label for label in page.labels if label[2] == anchor and label[3][-1].isdigit()]
        values = [float(label[3].replace("−", "-")) for label in ticks]
        step, low, high = round(values[1] - values[0], 9), min(0.0, *ends), max(0.0, *ends)
        assert 4 <= len(values) <= 9 and any(value == 0 for value in values) and f"{step:.0e}"[0] in "125"
        # the table's numbers are rounded to a tenth
        assert values[0] - 0.05 <= low <= values[0] + step and values[-1] - step <= high <= values[-1] + 0.05
        decimals = len(f"{step:g}".partition(".")[2])
        for number, (label, value) in enumerate(zip(ticks, values)):
            assert value == pytest.approx(values[0] + number * step)
            assert label[3].lstrip("+−") == f"{abs(value):.{decimals}f}", "as many digits as the step has"
            along = (label[place] - ticks[0][place]) / (ticks[-1][place] - ticks[0][place])
            assert along == pytest.approx(number / (len(values) - 1), abs=0.001)
