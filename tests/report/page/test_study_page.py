"""The page of a study: whole, self-contained, and no other numbers than the study's."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from made_up_study import FIGURES, KERNELS, NOT_MADE, made_up, record
from page_reader import Page, numbers
from whole_schedule import whole_walk

from kernel_dvfs.cli.main import main
from kernel_dvfs.layout import DEPLOYABLE, ITERATION_SCHEDULE, STRICT, iteration_name
from kernel_dvfs.profile.store import read_profile, write_profile
from kernel_dvfs.registry import outputs
from kernel_dvfs.report.headings import heading_of
from kernel_dvfs.report.page.deployment import deployment
from kernel_dvfs.report.page.study_page import SECTIONS
from kernel_dvfs.report.page.tables import duration, energy_in_words, table
from kernel_dvfs.report.results import Results
from kernel_dvfs.sequence.deployable import FREE, LAUNCH

TABLES = outputs("gpu").of("table")
WITHOUT = ",".join(NOT_MADE)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A complete study. Not to be changed: use `own`."""
    return made_up(tmp_path_factory.mktemp("results") / "sim-toy-1/toy-b40-tp1")


@pytest.fixture
def own(study, tmp_path):
    return shutil.copytree(study, tmp_path / study.parent.name / study.name)


def page_of(folder, *words) -> Page:
    assert main(["report", str(folder), "--without", WITHOUT, *words]) == 0
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
        for words in ("save 7.2 %", "if it may take", "Before you rely on it", "Put it to work", "Clocks of each")
    ]
    assert order == sorted(order)
    first = page.rows("tolerated")[0]
    assert first["limit"][1].startswith("no longer (time limit missed)")
    assert (first["energy"][1], first["time"][1]) == ("−7.2 %", "+0.2 %")
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
    words = page.text[: page.text.index("The numbers behind it")].split()
    assert len(words) < 220


def test_what_can_be_deployed_stands_beside_the_headline(page, own):
    assert page.text.index("launch by launch −3.1 % today (claimed)") < page.text.index("Before you rely on it")
    assert [row["energy"][1] for row in page.rows("tolerated")][-1] == "−0.2 %"  # one pair for the run, claimed
    assert (
        "Deployable, claimed: −3.12 %" in page.text
        and "a change of clocks takes 10 ms and stalls the GPU for 0.1 ms (assumed)" in page.text
    )
    assert "at 1 ms −4.25 %; at 50 ms −1.50 %; a pair for each pass −0.50 %; one pair for the run −0.25 %" in page.text
    assert "as if changes of clocks cost nothing" in page.text
    (own / "tables/deployable.csv").unlink()
    assert "Deployable, claimed" not in page_of(own).text


def test_every_number_of_every_table_is_the_csvs(page, study):
    shown = 0
    for path in sorted(study.glob("tables/*.csv")):
        expected = list(csv.DictReader(path.open()))
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
    for path in study.glob("tables/*.csv"):
        rows = list(csv.DictReader(path.open()))
        wanted = {name for name in rows[0] if name != "gpu" and any(row[name] for row in rows)}
        bounds = {name for name in wanted if name.endswith(("_low_percent", "_high_percent"))}
        hidden = wanted - bounds - set(page.tables[path.stem][0])
        # what every row has alike is said once, above the table
        for name in hidden:
            assert len({row[name] for row in rows}) == 1, (path, name)
            assert f"{heading_of(name)} {rows[0][name]}" in page.text, (path, name)


def test_kernels_say_what_they_weigh_and_what_they_ran_at(page):
    first, second, third = page.rows("chosen_clocks")
    # launches are equal: 3 J of 5 J
    assert float(first["energy_share_percent"][0]) == pytest.approx(60)
    assert float(first["part_of_the_saving_pp"][0]) == pytest.approx(-12.3)
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
        "Simulated GPU.",
        "Time limit missed. Measured again, it breaks its limit.",
        "Throttled. 3 of 18",
        "2 of 3 kernels",
        "−7.64 to −7.20 %",
    ):
        assert words in page.text, words


@pytest.mark.parametrize("verdict", ["contradicts", "does not contradict"])
def test_a_walk_s_bound_and_whether_it_is_contradicted_are_said_once_on_the_first_screen(own, verdict):
    path = own / f"schedules/{STRICT}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"walk": whole_walk()}))
    path = own / "tables/headline.csv"
    path.write_text(path.read_text().replace("breaks its limit", verdict))
    page = page_of(own)
    first = page.text[: page.text.index("The numbers behind it")]
    assert first.count("it is at most −0.02 % slower, shown with 90 % confidence by data that did not choose it") == 1
    assert f"; measuring again {verdict} this" in first and "proven" not in first
    assert ("time limit missed" in first) is ("Time limit missed." in page.text) is (verdict == "contradicts")
    assert "Another minute of measuring would save at most 0.002 points of energy more." in page.text
    assert f'<span class="badge {verdict.replace(" ", "_")}">{verdict}</span>' in page.html


def test_the_headline_stands_with_its_band(page, tmp_path):
    assert "energy −7.6 to −7.2 % over what nobody has measured, without noise" in page.text
    assert "−7.64 to −7.20 % over what nobody has measured (default −7.23 %)" in page.text
    folder = made_up(tmp_path / "toy-1a2b3c4d/toy-b40-tp1")
    (folder / "tables/headline_band.csv").unlink()
    assert "−7.64 to −7.20 %" not in page_of(folder).text


def test_a_real_gpu_is_named_with_its_dates(tmp_path):
    without = f"{WITHOUT},tensor_energy,headline_band,headline_map"
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
    (folder / "tables/baseline.csv").write_text("study,id,power_w,gpu\nkernel,forward_gemm,300.25,Toy\n")
    (folder / "tables/passes.csv").write_text("pass,time_ms,gpu\nforward,1.5,Toy\n")
    page = page_of(folder, "--without", ",".join(left_out) if told else "")
    assert "At auto clocks one iteration takes " in page.text and "board 1a2b3c4d)" in page.text
    assert "only auto clocks were measured" in page.text and "What is missing" not in page.text
    assert page.rows("baseline")[0]["power_w"][1] == "300.2" and len(page.images) == 1
    unfolded = page.html.partition('<details class="part" open>')[2]
    assert unfolded.lstrip().startswith('<summary><h2 id="kernels">'), "the answer lies folded"
    assert capsys.readouterr().err == ""


def test_deployment_names_only_schedules_that_are_there(page, own):
    assert "kernel-dvfs apply --schedule results/sim-toy-1/toy-b40-tp1/schedules/kernel-single-waste" in page.text
    assert "kernel-dvfs apply --pass-level" in page.text and "kernel-dvfs reset --all" in page.text
    (own / "schedules/pass-global-waste-slack0.json").unlink()
    assert "--pass-level" not in page_of(own).text


@pytest.mark.parametrize(
    ("walk", "said"),
    [
        (
            whole_walk(over_percent=2.5),
            "No pair is shown to save energy in auto's time with a confidence of 97.5 %: nothing to set.",
        ),
        (None, "Of all pairs, auto is the best for each pass: nothing to set."),
    ],
)
def test_passes_left_at_auto_say_what_is_known_and_no_more(own, walk, said):
    path = own / "schedules/pass-global-waste-slack0.json"
    targets = {"forward": {"core_mhz": "auto", "mem_mhz": "auto"}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"walk": walk, "targets": targets}))
    text = page_of(own).text
    assert said in text and "--pass-level" not in text


@pytest.mark.parametrize(("error_j", "is_offered"), [(0.02, True), (0.5, False), (None, True)])
def test_a_pair_that_saves_less_than_its_error_is_not_recommended(own, error_j, is_offered):
    """7.666 % are claimed of 10 J (kernels) and 2 J (pass). 0.02 J are an error of 1.9 and 5.5 %, 0.5 J of far more."""
    path = own / "profile.parquet"
    table, about = read_profile(path)
    columns = {name: table[name].to_pylist() for name in table.column_names}
    columns["energy_se_j"] = [error_j for _ in columns["target"]]
    write_profile(path, columns, about["gpu"], about["workload"], about["settings"])
    text = page_of(own).text
    assert ("apply --schedule" in text) is ("apply --pass-level" in text) is is_offered
    assert ("would save less than can be told from nothing" in text) is not is_offered


def test_a_forecast_is_called_so_in_table_plane_and_fleet_and_nothing_is_called_measured_again(tmp_path, page):
    own = made_up(tmp_path / "sim-toy-1/toy-b40-tp1", forecast=True)
    forecast = page_of(own)
    assert "forecast" in forecast.rows("tolerated")[0]["limit"][1] and "would save 7.2 %" in forecast.text
    assert "forecast −7.23 %" in forecast.html and "against auto, forecast" in forecast.text
    assert "measured again" not in page.rows("tolerated")[0]["limit"][1] and "would save" not in page.text
    assert "measured again −7.23 %" in page.html and "against auto, measured again" in page.text
    assert "measured again −7.23 %" not in forecast.html and "against auto, measured again" not in forecast.text


def test_a_claim_is_drawn_as_a_claim(tmp_path, page):
    claimed = page_of(made_up(tmp_path / "sim-toy-1/toy-b40-tp1", fresh=False))
    assert 'circle class="claimed"' in claimed.html and 'circle class="again"' not in claimed.html
    assert 'circle class="again"' in page.html and 'circle class="claimed"' not in page.html


def test_launch_by_launch_names_the_schedules_of_this_study_by_latency_and_no_stale_ones(own):
    def iteration(latency_s):
        return {"schema": ITERATION_SCHEDULE, "switching": {"latency_s": latency_s}, "change_count": 4} | {
            "energy_change_percent": -3.0,
            "time_change_percent": 0.0,
        }

    for latency_s in (0.001, 0.002, 0.01, 0.05):
        (own / f"schedules/{iteration_name(latency_s)}.json").write_text(json.dumps(iteration(latency_s)))
    setup = json.loads((own / f"schedules/{STRICT}.json").read_text())["workload"]["setup"]
    rows = [{"way": LAUNCH, "latency_ms": latency_ms} for latency_ms in (50.0, 1.0, 10.0)]
    content = {"schema": DEPLOYABLE, "workload": {"setup": setup}, "rows": [{"way": FREE, "latency_ms": 0.0}, *rows]}
    (own / "schedules/deployable.json").write_text(json.dumps(content))
    text = page_of(own).text
    names = [f"schedules/iteration-{latency}ms.json" for latency in (1, 10, 50)]
    assert sorted(names, key=text.index) == names and "iteration-2ms" not in text
    step = deployment(Results(own), {"step": {}}).steps[0]
    assert "schedules/iteration-10ms.json" in step.command, "the middle one"
    assert "changes take 10 ms (assumed); claimed: 3.00 % less energy, the same time" in text
    (own / "schedules/deployable.json").unlink()
    assert "Launch by launch" not in page_of(own).text, "nothing says that these are of this study"


def test_wherever_a_latency_stands_it_says_that_it_was_measured_and_on_what(own):
    measured = "measured on Toy (GPU-1a2b3c4d, driver 580, 2026-11-22)"
    path = own / "schedules/deployable.json"
    setup = json.loads((own / f"schedules/{STRICT}.json").read_text())["workload"]["setup"]
    rows = [{"way": LAUNCH, "latency_ms": each, "is_default": True, "costs": measured} for each in (12.5, 31.0)]
    path.write_text(json.dumps({"schema": DEPLOYABLE, "workload": {"setup": setup}, "rows": rows}))
    table = own / "tables/deployable.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([f"{lines[0]},costs", *(f'{line},"{measured}"' for line in lines[1:])]) + "\n")
    page = page_of(own)
    assert f"0.1 ms ({measured})" in page.text, "the card"
    assert f"It takes 12.5 to 31 ms ({measured})" in page.text, "the note"
    assert f"costs {measured}." in page.text, "the table"
    assert "(assumed)" not in page.text


def test_numbers_are_shown_in_the_unit_that_they_are_read_in():
    rows = [{"id": "a", "time_us": "8912.5", "energy_mj": "3210.0", "power_w": "360.2"}]
    rows += [{"id": "b", "time_us": "12.5", "energy_mj": "", "power_w": "70"}]
    found = table("baseline", rows)
    assert [column.title for column in found.columns] == ["id in schedules", "time, ms", "energy, J", "power, W"]
    assert [[cell.text for cell in row[1:3]] for row in found.rows] == [["8.912", "3.210"], ["0.01250", "–"]]
    assert [row[1].value for row in found.rows] == ["8912.5", "12.5"], "sorted by what the file holds"
    small = table("baseline", [{"id": "b", "time_us": "12.5"}])
    assert small.columns[1].title == "time, µs" and small.rows[0][1].text == "12.5"
    assert (duration(0.6241), duration(1.2342), energy_in_words(441.2)) == ("624.1 ms", "1.234 s", "441.2 J")


def test_a_page_is_light(page):
    assert len(page.html) < 200_000, "tables and style, without figures worth the name"


def test_every_table_and_figure_belongs_to_a_section_of_the_page_or_to_none():
    assert {each.section for each in (*TABLES.values(), *FIGURES.values())} <= {*SECTIONS, ""}


# --- what is not there -------------------------------------------------------------------------------------------


def test_a_complete_study_misses_nothing(own, capsys):
    assert "What is missing" not in page_of(own).text
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        ("tables/headline.csv", "tables headline"),
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
    path = own / "tables/headline.csv"
    path.write_text(path.read_text().replace("over 10 sessions", "within one session"))
    text = page_of(own).text
    assert (
        "within one session" in text
        and "What changes from one session to the next is not in the 95 % intervals" in text
    )


def test_without_fresh_repeats_the_saving_is_called_claimed(tmp_path, capsys):
    page = page_of(made_up(tmp_path / "sim-toy-1/w", fresh=False))
    first = page.rows("tolerated")[0]
    assert first["limit"][1] == "no longer claimed" and first["energy"][1] == "−7.7 %" and "Claimed only." in page.text
    assert "tables headline, validation: not made yet" in capsys.readouterr().err


def test_a_table_has_no_fresh_repeats_and_does_not_miss_them(own, capsys):
    profile_of_a_table(own)
    page = page_of(own)
    assert "a table cannot be measured again" in page.text and "claimed" in page.rows("tolerated")[0]["limit"][1]
    assert '<details class="part" open>' not in page.html
    for path in own.glob("schedules/*.json"):
        if path.stem != STRICT:
            path.unlink()
    first, _, folded = page_of(own).text.partition("The numbers behind it")
    assert "reset --all" not in first and "reset --all" in folded, "where there is nothing to set"
    said = capsys.readouterr().err
    assert "validation" not in said and "claims" not in said and "What is missing" not in page.text


def profile_of_a_table(folder):
    from kernel_dvfs.profile.store import read_profile, write_profile

    table, metadata = read_profile(folder / "profile.parquet")
    columns = {name: table[name].to_pylist() for name in table.column_names}
    about = metadata["gpu"] | {"kind": "table"}
    write_profile(folder / "profile.parquet", columns, about, metadata["workload"], metadata["settings"])
    simulated = ("tensor_energy", "headline_band")
    for name in (
        "headline",
        "validation",
        "data_parallelism",
        "tensor_parallelism",
        *simulated,
        "omitted_pairs",
        "claims",
    ):
        (folder / f"tables/{name}.csv").unlink()
    shutil.rmtree(folder / "setup")
    (folder / "published.parquet").unlink()
    shutil.rmtree(folder / "measurements")


@pytest.mark.parametrize(
    ("relative", "content"),
    [
        ("tables/claims.csv", b""),
        ("tables/claims.csv", b"a,b\n1\n"),
        ("tables/claims.csv", b"\xff\xfe"),
        ("figures/fig5_kernels.png", b"not a picture"),
        ("tables/extra.csv", b"a,b\n1,2,3\n"),
    ],
)
def test_a_broken_file_is_named_and_the_rest_is_shown(own, capsys, relative, content):
    (own / relative).write_bytes(content)
    page = page_of(own)
    said = capsys.readouterr().err
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
    (own / "tables/new_thing.csv").write_text("kernel,power_w\na,12.5\n")
    page = page_of(own)
    assert page.rows("new_thing") == [{"kernel": ("a", "a"), "power_w": ("12.5", "12.5")}]


def test_columns_are_read_from_the_heading(own):
    path = own / "tables/kernel_clocks.csv"
    rows = list(csv.DictReader(path.open()))
    for row in rows:
        row["fresh_energy_change_percent"] = "-1.5"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["fresh_energy_change_percent", *rows[0]][: len(rows[0])])
        writer.writeheader()
        writer.writerows(rows)
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
