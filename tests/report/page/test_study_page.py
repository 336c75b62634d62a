"""The page of a study: whole, self-contained, and no other numbers than the study's."""

import json
import re
import shutil
from pathlib import Path

import pytest
from made_up_study import FIGURES, KERNELS, NOT_MADE, WAYS, made_up, record
from page_reader import Page, numbers
from whole_schedule import whole_walk

from kernel_dvfs.cli.main import main
from kernel_dvfs.layout import ITERATION_SCHEDULE, LAUNCH, PASS, STRICT, iteration_name
from kernel_dvfs.profile.store import read_profile, write_profile
from kernel_dvfs.registry import outputs
from kernel_dvfs.report.headings import heading_of
from kernel_dvfs.report.page.study_page import sections
from kernel_dvfs.report.page.tables import duration, energy_in_words, table
from kernel_dvfs.report.results import Results
from kernel_dvfs.report.words import set_today
from kernel_dvfs.table_file import read_rows as rows_of
from kernel_dvfs.table_file import write_rows
from kernel_dvfs_deploy.page import deployment

TABLES = outputs("gpu").of("table")
WITHOUT = ",".join(NOT_MADE)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A complete study. Not to be changed: use `own`."""
    return made_up(tmp_path_factory.mktemp("results") / "sim-toy-1/toy-b40-tp1")


@pytest.fixture
def own(study, tmp_path):
    return shutil.copytree(study, tmp_path / study.parent.name / study.name)


def page_of(folder, *words, code=0) -> Page:
    assert main(["report", str(folder), "--without", WITHOUT, *words]) == code
    page = Path(words[words.index("-o") + 1]) if "-o" in words else folder / "report.html"
    return Page(page.read_text("utf-8"))


@pytest.fixture(scope="module")
def page(study):
    return page_of(study)


def test_every_tag_closes_and_every_link_within_the_page_leads_somewhere(page):
    assert page.faults == []
    anchors = {each[1:] for each in page.addresses if each.startswith("#")}
    assert {"cautions", "behind"} <= anchors <= set(page.ids)


def test_it_loads_nothing(page):
    assert page.outside() == []
    assert all(image["src"].startswith("data:image/png;base64,") for image in page.images)
    assert len(page.images) == len(FIGURES)


def test_an_address_that_would_load_something_is_told_apart():
    html = '<p><img src="http://x.org/a.png"><a href="#b">x</a><a href="//x.org">y</a></p><style>a{b:url(c)}</style>'
    assert len(Page(html).outside()) == 4
    assert Page("<p><b></p>").faults


def test_names_are_shown_as_they_are_and_never_as_html(page):
    assert page.rows("kernel_clocks")[0]["name"][1] == "GEMM <b>&'\""
    assert "simulated Toy <1>, toy-b40-tp1" in page.text
    assert "<b>&" not in page.html and "<about>" not in page.html


def test_the_answer_comes_first_fresh_beside_claimed(page):
    order = [
        page.text.index(words)
        for words in ("save 7.2 %", "If it may take", "Before you rely on it", "Put it to work", "Clocks of each")
    ]
    assert order == sorted(order)
    assert (
        "save 7.2 % of the energy, but take 0.2 % more time, and 11.6 % within 1 % more time; 6.2 % can be" in page.text
    )
    assert "−7.2 % energy, +0.2 % time: 1998 J, 6.386 s measured again (claimed −7.7 %)" in page.text
    assert "10 repeats over 10 sessions: time +0.16 to +0.31 %" in page.text
    assert (
        "7.23 % less energy" in page.text
        and "0.24 % more time" in page.text
        and "measured again in 10 repeats" in page.text
    )
    assert "7.67 % less energy" in page.text  # as claimed
    assert page.text.count("over 10 sessions") >= 2 and "Intervals within one session" not in page.text
    assert "one training iteration takes 6.371 s and 2153 J" in page.text


def test_the_first_screen_is_short(page):
    body = re.sub(r"<(script|style|svg|title|pre).*?</\1>", " ", page.html, flags=re.S)
    words = Page(body[: body.index('<section id="clouds"')]).text.split()
    assert len(words) < 220


def edited(path, **cells) -> None:
    """Write a table again with other cells in every row."""
    write_rows(path, [row | cells for row in rows_of(path)])


def as_text(cell) -> str:
    return "" if cell is None else str(cell)


def test_every_number_of_every_table_is_its_rows(page, study):
    shown = 0
    for path in sorted(study.glob("tables/*.json")):
        expected = [{name: as_text(cell) for name, cell in row.items()} for row in rows_of(path)]
        rows = page.rows(path.stem)
        assert len(rows) == len(expected)
        for row, wanted in zip(rows, expected):
            for column, (value, text) in row.items():
                if column not in wanted:
                    continue  # of the profile
                assert value == wanted[column], (path, column)
                stem = column.removesuffix("_change_percent")
                values = [
                    wanted[name] for name in (column, f"{stem}_low_percent", f"{stem}_high_percent") if wanted.get(name)
                ]
                if values and column != "name" and all(_is_number(each) for each in values):
                    for each, (seen, tolerance) in zip(values, numbers(text), strict=True):
                        assert abs(seen - float(each)) <= tolerance, (path, column, text)
                        shown += 1
    assert shown > 100


def _is_number(text) -> bool:
    try:
        return bool(float(text)) or True
    except ValueError:
        return False


def test_each_csv_column_with_a_value_is_shown(page, study):
    for path in study.glob("tables/*.json"):
        rows = [{name: as_text(cell) for name, cell in row.items()} for row in rows_of(path)]
        wanted = {name for name in rows[0] if name != "gpu" and any(row[name] for row in rows)}
        bounds = {name for name in wanted if name.endswith(("_low_percent", "_high_percent"))}
        hidden = wanted - bounds - set(page.tables[path.stem][0])
        # what every row has alike is said once, above the table
        for name in hidden:
            assert len({row[name] for row in rows}) == 1, (path, name)
            assert f"{heading_of(name)} {rows[0][name]}" in page.text, (path, name)


def test_kernels_say_what_they_weigh_and_what_they_ran_at(page):
    first, second, third = page.rows("chosen_clocks")
    share = 400 / (400 + 276.569 + 400)  # launches are equal
    assert float(first["energy_share_percent"][0]) == pytest.approx(100 * share)
    assert float(first["part_of_the_saving_pp"][0]) == pytest.approx(-20.5 * share)
    assert first["reached_core_mhz"][1] == "1440" and first["verdict"][1] == "throttled"
    assert second["core_mhz"][1] == "auto" and second["reached_core_mhz"][1] == "–"
    assert third["id"][1] == "backward_gemm"


def test_provenance_names_device_seed_settings_and_records(page, study):
    digest = next((study / "setup").iterdir()).stem
    for words in (
        digest,
        "toy model 1",
        "seed 7",
        "window, s 5",
        "batch 40",
        "kernel-dvfs 0.",
        "ortools",
        "page written",
    ):
        assert words in page.text, words
    records = page.tables["records"][1]
    assert [[text for _, text in row] for row in records if row] == [
        ["sweep of the kernels", "6", "6", "3", "3"],
        ["the choice, measured again", "1", "12", "12", "–"],
    ]


def test_warnings_name_what_a_reader_must_know(page):
    for words in (
        "Simulated GPU. Every number on this page comes from a model of the GPU, not from a board. "
        "Savings: not judged by measurements.",
        "Time limit missed. Measured again, it breaks its limit.",
        "Throttled. 3 of 18",
        "2 of 3 kernels",
    ):
        assert words in page.text, words


@pytest.mark.parametrize("verdict", ["contradicts", "does not contradict"])
def test_a_walk_s_bound_and_whether_it_is_contradicted_are_said_once_on_the_first_screen(own, verdict):
    path = own / f"schedules/{STRICT}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"walk": whole_walk()}))
    edited(own / "tables/headline.json", verdict=verdict)
    page = page_of(own)
    first = page.text[: page.text.index("The numbers behind it")]
    assert "simulated Toy <1>, toy-b40-tp1; savings: not judged by measurements" in first
    assert first.count("it is at least 0.02 % faster, shown with 90 % confidence by data that did not choose it") == 1
    assert f"; measuring again {verdict} this" in first and "proven" not in first
    assert ("time limit missed" in first) is ("Time limit missed." in page.text) is (verdict == "contradicts")
    assert "Another minute of measuring would save at most 0.002 points of energy more." in page.text
    assert f'<span class="badge {verdict.replace(" ", "_")}">{verdict}</span>' in page.html


def test_a_real_gpu_is_named_with_its_dates(tmp_path):
    without = f"{WITHOUT},tensor_energy"
    page = page_of(made_up(tmp_path / "toy-1a2b3c4d/toy-b40-tp1", kind="nvml"), "--without", without)
    for words in (
        "UUID GPU-1a2b3c4d",
        "driver 580.1",
        "power limit 700 W",
        "measured 2026-02-03 04:05 UTC",
        "host node1",
    ):
        assert words in page.text, words
    assert "simulated" not in page.text.replace("simulated Toy", "").lower()


@pytest.mark.parametrize("told", [True, False])
def test_a_gpu_measured_at_auto_alone_misses_nothing(tmp_path, capsys, told):
    """Neither where the rule says what the study leaves out nor where a user asks for the page, who tells nothing."""
    folder = made_up(tmp_path / "toy-1a2b3c4d/toy-b40-tp1", kind="nvml", fresh=False, clocks="auto-only")
    left_out = sorted({*TABLES, *FIGURES} - {"baseline", "fig5_kernels"})
    for path in [*folder.glob("tables/*"), *folder.glob("schedules/*"), *folder.glob("figures/*")]:
        if path.stem in (*left_out, STRICT):
            path.unlink()
    baseline = {"study": "kernel", "id": "forward_gemm", "power_w": 300.25, "gpu": "Toy"}
    write_rows(folder / "tables/baseline.json", [baseline])
    write_rows(folder / "tables/passes.json", [{"pass": "forward", "time_ms": 1.5, "gpu": "Toy"}])
    page = page_of(folder, "--without", ",".join(left_out) if told else "")
    assert "At auto clocks one iteration takes " in page.text and "board 1a2b3c4d)" in page.text
    assert "only auto clocks were measured" in page.text and "What is missing" not in page.text
    assert page.rows("baseline")[0]["power_w"][1] == "300.2" and len(page.images) == 1
    unfolded = page.html.partition('<details class="part" open>')[2]
    assert unfolded.lstrip().startswith('<summary><h2 id="kernels">'), "the answer lies folded"
    assert capsys.readouterr().err == ""


def test_every_command_names_what_is_there(page, study):
    for word in re.findall(r"results/sim-toy-1/toy-b40-tp1/[\w./-]+", page.text):
        path = study / word.removeprefix("results/sim-toy-1/toy-b40-tp1/")
        assert path.is_file() or path.name == "iteration-10ms.json", word
    assert "kernel-dvfs reset --all" in page.text
    assert "own GPU: kernel-dvfs study nvml" in page.text and "Measure yours first: kernel-dvfs study nvml" in page.text


def test_a_forecast_is_called_so_in_card_chart_and_fleet_and_nothing_is_called_measured_again(tmp_path, page):
    own = made_up(tmp_path / "sim-toy-1/toy-b40-tp1", forecast=True)
    forecast = page_of(own)
    assert {row["how"][0].partition(" (")[0] for row in forecast.rows("stops")} == {"forecast"}
    assert "would save 7.2 %" in forecast.text and "would save" not in page.text
    assert "forecast −7.23 %" in forecast.html and "against auto, forecast" in forecast.text
    assert "measured again −7.23 %" in page.html and "against auto, measured again" in page.text
    assert "can be set: kernel-dvfs study FILE.py:FUNCTION" in forecast.text
    assert "measured again −7.23 %" not in forecast.html and "against auto, measured again" not in forecast.text


def test_launch_by_launch_names_the_schedules_of_this_study_by_latency_and_no_stale_ones(own):
    def iteration(latency_s):
        switching = {"behaviour": "ahead", "latency_s": latency_s, "jitter": 0.0}
        return {"schema": ITERATION_SCHEDULE, "switching": switching, "change_count": 4} | {
            "energy_change_percent": -3.0,
            "time_change_percent": 0.0,
        }

    for latency_s in (0.001, 0.002, 0.01, 0.05):
        (own / f"schedules/{iteration_name(latency_s)}.json").write_text(json.dumps(iteration(latency_s)))
    deployable(own, *({"latency_ms": latency_ms} for latency_ms in (50.0, 1.0, 10.0)))
    text = page_of(own).text
    names = [f"schedules/iteration-{latency}ms.json" for latency in (1, 10, 50)]
    assert sorted(names, key=text.index) == names and "iteration-2ms" not in text
    step = deployment(Results(own), {"step": {}}).steps[0]
    assert "schedules/iteration-10ms.json" in step.command, "the middle one"
    assert "changes take 10 ms (assumed); claimed: 3.00 % less energy, the same time" in text
    deployable(own, {"again": [[0.25, -2.5], [0.75, -4.5]]})
    assert "changes take 10 ms (assumed); measured again: 3.50 % less energy, 0.50 % more time" in page_of(own).text
    (own / "schedules/deployable.json").unlink()
    assert "Launch by launch" not in page_of(own).text, "nothing says that these are of this study"


def test_wherever_a_latency_stands_it_says_that_it_was_measured_and_on_what(own):
    measured = "measured on Toy (GPU-1a2b3c4d, driver 580, 2026-11-22)"
    deployable(own, {"latency_ms": 12.5, "mem_latency_ms": 31.0, "costs": measured})
    edited(own / "tables/deployable.json", costs=measured)
    page = page_of(own)
    assert f"0.1 ms: {measured}" in page.text, "the first screen"
    assert f"It takes 12.5 ms (core) or 31 ms (memory), medians ({measured})" in page.text, "the note"
    assert "(assumed" not in page.text and ": assumed" not in page.text


def test_of_several_latencies_the_middle_one_s_counts_whatever_comes_last(own):
    passes = [{"way": PASS, "latency_ms": ms, "clocks": f"forward {ms:g},auto"} for ms in (5.0, 10.0, 20.0)]
    deployable(own, *passes, *({"latency_ms": ms} for ms in (5.0, 10.0, 20.0)))
    kept = [(row["way"], row["latency_ms"]) for row in set_today(Results(own).deployable)]
    assert kept == [(PASS, 10.0), (LAUNCH, 10.0)]


def deployable(own, *rows):
    """Write the list of what can be deployed, rows as they differ from one that is claimed."""
    path = own / "schedules/deployable.json"
    usual = WAYS[-1] | {"again": []}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": [usual | row for row in rows]}))


def test_numbers_are_shown_in_the_unit_that_they_are_read_in():
    rows = [{"id": "a", "time_us": 8912.5, "energy_mj": 3210.0, "power_w": 360.2}]
    rows += [{"id": "b", "time_us": 12.5, "energy_mj": None, "power_w": 70}]
    found = table("baseline", rows)
    assert [column.title for column in found.columns] == ["id in schedules", "time, ms", "energy, J", "power, W"]
    assert [[cell.text for cell in row[1:3]] for row in found.rows] == [["8.912", "3.210"], ["0.01250", "–"]]
    assert [row[1].value for row in found.rows] == ["8912.5", "12.5"], "sorted by what the file holds"
    small = table("baseline", [{"id": "b", "time_us": 12.5}])
    assert small.columns[1].title == "time, µs" and small.rows[0][1].text == "12.5"
    assert (duration(0.6241), duration(1.2342), energy_in_words(441.2)) == ("624.1 ms", "1.234 s", "441.2 J")


def test_a_page_is_light(page):
    assert len(page.html) < 200_000, "tables and style, without figures worth the name"


def test_every_table_and_figure_belongs_to_a_section_of_the_page_or_to_none():
    assert {each.section for each in (*TABLES.values(), *FIGURES.values())} <= {*sections(), ""}


# --- what is not there -------------------------------------------------------------------------------------------


def test_a_complete_study_misses_nothing(own, capsys):
    assert "What is missing" not in page_of(own).text
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        ("tables/headline.json", "tables headline"),
        ("figures/fig6_relaxed_waste.png", "figures fig6_relaxed_waste"),
        (f"schedules/{STRICT}.json", STRICT),
        ("profile.parquet", "profile.parquet"),
        ("tables", "chosen_clocks, deployable"),
        ("figures", "fig2_desirability"),
    ],
)
def test_what_is_missing_is_named_on_the_page_and_in_one_line_and_the_rest_is_shown(own, capsys, gone, named):
    path = own / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    page = page_of(own)
    said = capsys.readouterr().err
    assert said.startswith("note: ") and said.count("\n") == 1 and named in said
    assert page.faults == [] and page.outside() == []
    assert "What is missing" in page.text and named in page.text
    assert ("claims" in page.tables) == (gone != "tables")
    assert len(page.images) == len(FIGURES) - (1 if "fig6" in gone else len(FIGURES) if gone == "figures" else 0)


def test_intervals_of_one_session_are_called_that(own):
    edited(own / "tables/headline.json", interval="within one session")
    text = page_of(own).text
    assert (
        "within one session" in text
        and "What changes from one session to the next is not in the 95 % intervals" in text
    )


def test_without_fresh_repeats_the_saving_is_called_claimed(tmp_path, capsys):
    page = page_of(made_up(tmp_path / "sim-toy-1/w", fresh=False))
    first = page.rows("stops")[0]
    assert (first["how"][0], first["energy"][0]) == ("claimed", "−7.7 %") and "Claimed only." in page.text
    assert 'circle class="again free"' not in page.html, "drawn as a claim"
    assert "tables headline, validation: not made yet" in capsys.readouterr().err


def test_a_table_has_no_fresh_repeats_and_does_not_miss_them(own, capsys):
    profile_of_a_table(own)
    page = page_of(own)
    assert "a table cannot be measured again" in page.text and page.rows("stops")[0]["how"][0] == "claimed"
    assert '<details class="part" open>' not in page.html
    for path in own.glob("schedules/*.json"):
        if path.stem != STRICT:
            path.unlink()
    first, _, folded = page_of(own).text.partition("The numbers behind it")
    assert "reset --all" not in first and "reset --all" in folded, "where there is nothing to set"
    said = capsys.readouterr().err
    assert "validation" not in said and "claims" not in said and "What is missing" not in page.text


def profile_of_a_table(folder):

    table, metadata, _ = read_profile(folder / "profile.parquet")
    columns = {name: table[name].to_pylist() for name in table.column_names}
    about = metadata["gpu"] | {"kind": "table"}
    write_profile(folder / "profile.parquet", columns, about, metadata["workload"], metadata["settings"])
    for name in (
        "headline",
        "validation",
        "data_parallelism",
        "tensor_parallelism",
        "tensor_energy",
        "omitted_pairs",
        "claims",
    ):
        (folder / f"tables/{name}.json").unlink()
    shutil.rmtree(folder / "setup")
    (folder / "published.parquet").unlink()
    shutil.rmtree(folder / "measurements")


@pytest.mark.parametrize(
    ("relative", "content"),
    [
        ("tables/claims.json", b""),
        ("tables/claims.json", b"a,b\n1\n"),
        ("tables/claims.json", b"\xff\xfe"),
        ("figures/fig5_kernels.png", b"not a picture"),
        ("tables/extra.json", b'{"rows": [1]}'),
        (f"schedules/{STRICT}.json", b'{"schema": '),
    ],
)
def test_a_broken_file_is_no_missing_one_and_the_rest_is_shown(own, capsys, relative, content):
    (own / relative).write_bytes(content)
    page = page_of(own, code=2)
    said = capsys.readouterr().err
    assert said.startswith(f"error: {own / 'report.html'} is written, without what is damaged: ")
    assert relative.rpartition("/")[2] in said and said.count("\n") == 1
    assert page.faults == [] and "kernel_clocks" in page.tables


def test_a_broken_record_is_counted_and_named(own):
    (own / "measurements/kernel/forward_gemm/auto-auto/r1.json").write_text('{"run": ')
    assert "Broken records. 1 files cannot be read (r1.json)" in page_of(own).text


def test_a_sweep_that_has_begun_says_how_far_it_is(own, capsys):
    for name in ("tables", "figures", "schedules"):
        shutil.rmtree(own / name)
    (own / "profile.parquet").unlink()
    page = page_of(own)
    assert "the sweep is not complete" in page.text and "records 7" in page.text
    assert capsys.readouterr().err.count("\n") == 1


def test_measurements_of_another_setup_are_said(own):
    record(own / "measurements/kernel/forward_gemm/auto-auto/r1.json", "0" * 12, "simulated", "disturbed")
    text = page_of(own).text
    assert "Mixed settings." in text and "Disturbed. 1 of 19 measurements" in text


def test_a_table_that_nobody_knows_is_shown_all_the_same(own):
    write_rows(own / "tables/new_thing.json", [{"kernel": "a", "power_w": 12.5}])
    page = page_of(own)
    assert page.rows("new_thing") == [{"kernel": ("a", "a"), "power_w": ("12.5", "12.5")}]


def test_columns_are_read_from_the_heading(own):
    edited(own / "tables/kernel_clocks.json", fresh_energy_change_percent=-1.5)
    assert page_of(own).rows("kernel_clocks")[0]["fresh_energy_change_percent"] == ("-1.5", "−1.50")


def test_the_same_study_gives_the_same_page(study, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1770000000")
    pages = [tmp_path / name for name in ("one.html", "two.html")]
    for path in pages:
        page_of(study, "-o", str(path))
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert "2026-02-02 02:40 UTC" in pages[0].read_text()


def test_the_strict_schedule_of_the_page_is_the_one_on_disk(page, study):
    schedule = json.loads((study / f"schedules/{STRICT}.json").read_text())
    shown = {row["id"][0]: row["core_mhz"][0] for row in page.rows("chosen_clocks")}
    assert shown == {name: str(pair["core_mhz"]) for name, pair in schedule["targets"].items()}
    assert set(shown) == set(KERNELS)
