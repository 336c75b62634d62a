"""The slider of a page: three ways of setting clocks, each with numbers that its own command gives."""

import json
import re
import shlex
from itertools import pairwise

import pytest
from made_up_study import POINTS, made_up
from page_reader import Page

from kernel_dvfs.choice.schedule import problem_from
from kernel_dvfs.cli.main import main
from kernel_dvfs.profile.store import read_profile, write_profile
from kernel_dvfs.report.page.frontier import (
    FREE,
    HERE,
    ONE,
    Chart,
    ChoiceCurve,
    ChoiceSource,
    ShownChange,
    Stop,
    apply_at,
    chart,
    clouds,
    free,
    one,
)
from kernel_dvfs_deploy.page import deployable

FREE_TITLE, HERE_TITLE, ONE_TITLE = "Clocks for each kernel, changes free", "Deployable here", "One pair for the run"
LIMITS = ["no longer", *(f"{each:g} % longer" for each in (0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5))]
AUTO_J, AUTO_S = 2153.138, 6.371338
PLACE = "results/sim-toy-1/toy-b40-tp1"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("run") / PLACE)


@pytest.fixture(scope="module")
def page(study):
    assert main(["report", str(study)]) == 0
    return Page((study / "report.html").read_text("utf-8"))


@pytest.fixture(scope="module")
def stops(page):
    """{(way, limit): {column: text}} of the table of stops."""
    rows = [{name: value for name, (value, _) in row.items()} for row in page.rows("stops")]
    found = {(row["way"], row["limit"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def percent(text):
    assert re.fullmatch(r"[+−]?\d+\.\d %", text), text
    return float(text.removesuffix(" %").replace("−", "-"))


def at(clocks):
    """Changes of (energy, time) in percent of {kernel: core clock}, None at auto, by the study's points."""
    energy, time = (2 * sum(POINTS[name][core][place] for name, core in clocks.items()) for place in (1, 0))
    return 100 * (energy / AUTO_J - 1), 100 * (time / AUTO_S - 1)


def test_every_way_has_every_limit_and_those_that_were_chosen_say_what_measuring_again_gave(stops):
    assert {limit for _, limit in stops} == set(LIMITS)
    assert [sum(way == each for way, _ in stops) for each in (FREE_TITLE, HERE_TITLE, ONE_TITLE)] == [11, 11, 11]
    known = {limit: row for (way, limit), row in stops.items() if way == FREE_TITLE and "again" in row["how"]}
    assert {limit: (row["energy"], row["time"], row["how"], row["note"]) for limit, row in known.items()} == {
        "no longer": ("−7.2 %", "+0.2 %", "measured again (claimed −7.7 %)", "time limit missed"),
        "1 % longer": ("−11.6 %", "+0.9 %", "measured again (claimed −12.1 %)", ""),
    }
    # of what can be set today, the best that changes clocks, and the pair; of 2153.138 J and 6.371338 s
    assert stops[HERE_TITLE, "1 % longer"]["note"] == "one pair: nothing better was chosen here"
    here, run = stops[HERE_TITLE, "no longer"], stops[ONE_TITLE, "no longer"]
    assert (here["energy"], here["time"], here["clocks"]) == ("−6.2 %", "0.0 %", "4 changes of clocks")
    assert (run["energy"], run["time"], run["takes"]) == ("−3.8 %", "−0.1 %", "2072 J, 6.363 s")
    assert run["how"] == "measured again (claimed −3.6 %)" and run["clocks"] == "core 1700 MHz, memory auto"


def test_the_number_beside_a_command_is_the_command_s_own(stops, study, monkeypatch, capsys):
    monkeypatch.chdir(study.parents[2])
    seen = set()
    for (way, _), row in stops.items():
        words = shlex.split(row["command"])
        if words[:2] == ["kernel-dvfs", "choose"] and row["how"] == "claimed":
            assert main([*words[1:], "--json"]) == 0
            said = json.loads(capsys.readouterr().out)
            found = said["energy_change_percent"], said["time_change_percent"]
        elif words[:2] == ["kernel-dvfs", "apply"] and row["how"] == "claimed":
            core = words[words.index("--pair") + 1].removesuffix(",auto")
            found = at(dict.fromkeys(POINTS, float(core)))
        else:
            continue
        seen.add(way)
        for text, value in zip((row["energy"], row["time"]), found):
            assert abs(percent(text) - value) <= 0.0501, row
    assert seen == {FREE_TITLE, HERE_TITLE, ONE_TITLE}


def test_more_time_never_claims_less_and_what_is_free_is_never_beaten(stops):
    claimed = {key: percent(row["energy"]) for key, row in stops.items() if row["how"] == "claimed"}
    for way in (FREE_TITLE, HERE_TITLE, ONE_TITLE):
        own = [claimed[way, limit] for limit in LIMITS if (way, limit) in claimed]
        assert all(after <= before for before, after in pairwise(own))
    for limit in LIMITS:
        ways = [claimed[way, limit] for way in (FREE_TITLE, HERE_TITLE, ONE_TITLE) if (way, limit) in claimed]
        assert ways == sorted(ways)
    for (_, limit), row in stops.items():
        if row["how"] == "claimed" and limit != "no longer":
            assert percent(row["time"]) <= float(limit.partition(" ")[0]) + 0.05


def test_the_cards_show_the_row_of_the_answer(page, stops):
    for way in (FREE_TITLE, HERE_TITLE, ONE_TITLE):
        row = stops[way, "no longer"]
        card = re.search(rf'<section class="way \w+" data-way="{way}".*?</section>', page.html, re.DOTALL)[0]
        shown = dict(re.findall(r'data-cell="(\w+)"[^>]*>([^<]*)<', card))
        assert {name: text.replace("&#39;", "'") for name, text in shown.items()} == {
            name: row[name] for name in ("energy", "time", "takes", "how", "clocks", "note", "command")
        }


def test_the_chart_has_each_stop_where_its_numbers_are(page, stops):
    """By the ticks: two of each axis tell its scale."""
    svg = re.search(r'<figure class="plane">.*?</svg>', page.html, re.DOTALL)[0]
    ticks = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(middle|end)">([+−\d.]+)</text>', svg)
    xs, ys = ([each for each in ticks if each[2] == anchor] for anchor in ("middle", "end"))

    def scale(first, last, place):
        """From a value to its place; labels of the second axis stand 4 below it."""
        a, b = (float(each[3].replace("−", "-")) for each in (first, last))
        p, q = (float(each[place]) - 4 * place for each in (first, last))
        return lambda value: p + (q - p) * (value - a) / (b - a)

    across, down = scale(xs[0], xs[-1], 0), scale(ys[0], ys[-1], 1)
    for name, way in ((FREE, FREE_TITLE), (HERE, HERE_TITLE), (ONE, ONE_TITLE)):
        places = re.search(rf'class="now {name}" data-places="([^"]*)"', svg)[1].split("|")
        for limit, place in zip(LIMITS, places, strict=True):
            x, y = map(float, place.split(","))
            row = stops[way, limit]
            assert x == pytest.approx(across(percent(row["time"])), abs=abs(across(0.05) - across(0)) + 0.1)
            assert y == pytest.approx(down(percent(row["energy"])), abs=abs(down(0.05) - down(0)) + 0.1)
        line = re.search(rf'<polyline class="{name}" points="([^"]*)"', svg)[1].split()
        assert set(places) <= set(line), "the line goes through its stops"
        if name != FREE:  # what cannot be mixed: one coordinate at a time
            corners = [tuple(map(float, each.split(","))) for each in line]
            assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(corners))
    # what was measured again has a point with both intervals: +0.16 to +0.31 % of time, -7.37 to -7.08 % of energy
    bars = re.findall(r'<line class="bar free" x1="([\d.]+)" x2="([\d.]+)" y1="([\d.]+)" y2="([\d.]+)"', svg)
    assert [float(each) for each in bars[0][:2]] == pytest.approx([across(0.159), across(0.313)], abs=0.11)
    assert [float(each) for each in bars[1][2:]] == pytest.approx([down(-7.373), down(-7.078)], abs=0.11)
    said = re.search(r"<title>([^<]*)</title>", svg)[1]
    assert said == (
        f"{FREE_TITLE}, no longer: energy measured again −7.23 % (−7.37 to −7.08 %); "
        "time measured again +0.24 % (+0.16 to +0.31 %)"
    )
    assert svg.count('circle class="again free"') == 2 and svg.count('circle class="again one"') == 1
    zero = re.search(r'<line class="zero" x1="([\d.]+)"', svg)[1]
    assert float(zero) == pytest.approx(across(0), abs=0.1)


def test_the_paper_s_own_point_stands_where_its_changes_are_and_the_axes_reach_it():
    stop = Stop(0, ShownChange(-14.6), ShownChange(0.6), "claimed", "", "")
    curve = ChoiceCurve(FREE, FREE_TITLE, [stop])
    assert chart([curve], (-14.6, 0.6)).star == chart([curve]).places[FREE]["no longer"] and chart([curve]).star is None
    x, y = chart([curve], (-41.0, 17.5)).star
    assert Chart.left < x <= Chart.right and Chart.top < y <= Chart.bottom and x > Chart.right - 100 and y > 250


def test_each_kernel_is_a_cloud_of_its_points_with_the_choice_ringed(page):
    figures = re.findall(r"<figure>\s*<svg.*?</figure>", page.html.partition('id="clouds"')[2], re.DOTALL)
    titles = [re.search(r'aria-label="(\w+) at every clock pair"', each)[1] for each in figures]
    assert titles == ["forward_gemm", "backward_gemm", "forward_gelu"], (
        "by what the answer saves, then by what they take"
    )
    points = POINTS["forward_gemm"]
    dots = {tuple(map(float, each)) for each in re.findall(r"M([\d.]+) ([\d.]+)h0", figures[0])}
    # 200 x 130 for -5 to 30 % of time and -60 to 20 % of energy
    wanted = {
        (200 * (100 * (t / 1.1 - 1) + 5) / 35, 130 * (20 - 100 * (e / 400 - 1)) / 80) for t, e, _ in points.values()
    }
    assert sorted(dots) == [pytest.approx(each, abs=0.06) for each in sorted(wanted)]
    said = re.search(r'data-said="([^"]*)"', figures[0])[1].split("|")
    assert len(said) == len(LIMITS) and said[0] == "core 1470 MHz, memory auto: −20.8 % energy, +0.8 % time"
    assert said[4].startswith("core 1700 MHz"), "of the choice with 1 % more"
    rings = [each.split(",") for each in re.search(r'data-places="([^"]*)"', figures[0])[1].split("|")]
    assert [float(each) for each in rings[0]] == pytest.approx([200 * (0.836363 + 5) / 35, 130 * 40.75 / 80], abs=0.06)


def test_a_slow_or_wasteful_pair_is_left_out_of_its_cloud_and_few_kernels_are_drawn():
    columns = {"study": [], "target": [], "launches_per_iteration": [], "core_mhz": [], "mem_mhz": [], "time_s": []}
    columns |= {"energy_j": [], "is_baseline": [], "verdict": [], "n": []}
    for number in range(11):
        for core, time_s, energy_j in (
            (None, 1.0, 10.0),
            (900.0, 1.31, 5.0),
            (1200.0, 1.0, 12.1),
            (1500.0, 0.99, 9 - number / 4),
        ):
            row = ("kernel", f"k{number}", 1, core, 5001.0 if core else None, time_s, energy_j, core is None, "ok", 1)
            for name, value in zip(columns, row):
                columns[name].append(value)
    problem = problem_from(columns | {"metadata": {"gpu": {"kind": "table"}, "workload": {}}})
    found = clouds(problem, free(problem, {"kind": "table"}, [], ChoiceSource("p.parquet")))
    assert [each.title for each in found] == [f"k{number}" for number in range(10, 2, -1)]
    assert found[0].dots.count("M") == 2, "auto and 1500 MHz"


# --- one pair for the run ---------------------------------------------------------------------------------------------


def problem_of(*rows, settings=("core_mhz", "mem_mhz"), error_j=None):
    """A problem of two kernels alike; rows: (setting..., time of one, energy of one), the first at auto."""
    names = [*settings, "time_s", "energy_j"]
    points = [dict(zip(names, row)) | {"is_baseline": number == 0} for number, row in enumerate(rows)]
    usual = {"study": "kernel", "launches_per_iteration": 1, "n": 1, "verdict": "ok"}
    usual |= {} if error_j is None else {"energy_se_j": error_j}
    listed = [usual | point | {"target": kernel} for kernel in "ab" for point in points]
    columns = {name: [row[name] for row in listed] for name in listed[0]}
    metadata = {"gpu": {"kind": "table"}, "workload": {}, "settings": list(settings)}
    return problem_from(columns | {"metadata": metadata})


def only(problem, shown=None):
    (stop,) = one(problem, {"kind": "table"}, shown or {}, [1.5]).stops
    return stop


AUTO = (None, None, 1.0, 10.0)


def test_the_best_pair_within_the_limit_is_offered():
    stop = only(
        problem_of(AUTO, (1500.0, 5001.0, 1.015, 9.0), (1200.0, 5001.0, 1.016, 8.0), (1400.0, 5001.0, 1.0, 9.5))
    )
    assert (stop.energy.claimed, stop.time.claimed) == pytest.approx((-10.0, 1.5)) and stop.how == "claimed"
    assert stop.command == "kernel-dvfs apply --pair 1500,5001 --baseline -- python train.py" and not stop.note


def test_a_pair_that_saves_less_than_its_error_is_not_offered():
    # 20 J, 1 J saved; errors of 4 independent sums: 1.96 sqrt(4) 0.3 J = 1.18 J, 5.88 %
    rows = (AUTO, (1500.0, 5001.0, 1.0, 9.5))
    assert only(problem_of(*rows, error_j=0.2)).command and only(problem_of(*rows, error_j=None)).command
    unsure = only(problem_of(*rows, error_j=0.3))
    assert not unsure.command and unsure.note == (
        "core 1500 MHz, memory 5001 MHz would save less than can be told from nothing (error 5.88 %): nothing to set"
    )


def test_where_auto_is_best_or_apply_cannot_set_it_nothing_is_offered():
    auto = only(problem_of(AUTO, (1500.0, 5001.0, 1.0, 10.5)))
    assert (auto.command, auto.note) == ("", "of all pairs, auto is the best")
    settings = ("core_mhz", "mem_mhz", "block_size")
    other = only(problem_of((None, None, 32.0, 1.0, 10.0), (1500.0, 5001.0, 64.0, 1.0, 9.0), settings=settings))
    assert (other.command, other.note) == ("", "apply sets clocks alone")
    settings = ("core_mhz", "mem_mhz", "power_cap_w")
    cap = only(problem_of((None, None, None, 1.0, 10.0), (1500.0, None, 250.0, 1.0, 9.0), settings=settings))
    assert cap.command == "kernel-dvfs apply --pair 1500,auto --power-limit 250 --baseline -- python train.py"


def test_a_reference_that_is_the_best_pair_is_no_saving_of_nothing():
    best = only(problem_of((1400.0, 5001.0, 1.0, 10.0), (1500.0, 5001.0, 1.0, 10.5), error_j=0.2))
    assert (best.command, best.note) == ("", "of all pairs, what it is compared with is the best")


def test_what_a_study_has_chosen_takes_its_limit_s_place():
    mine = only(problem_of(AUTO, (1500.0, 5001.0, 1.0, 9.0)))
    assert only(problem_of(AUTO, (900.0, 5001.0, 1.0, 8.0)), {1.5: mine}) is mine


def test_one_pair_in_both_passes_is_no_pair_a_pass(study):
    # of the locked pairs only 1700 MHz is reached by all kernels: there is nothing to mix it with
    found = deployable(str(study / "profile.parquet"), {"kind": "simulated", "name": "Toy"}, [0, 1.0, 5.0])
    assert found is not None and found.here == {}


def test_a_pair_a_pass_is_applied_by_pass():
    pairs = [("forward", {"core_mhz": 1500.0, "mem_mhz": None}), ("backward", {"core_mhz": 1200.0, "mem_mhz": 9251.0})]
    assert apply_at(pairs) == (
        "kernel-dvfs apply --pair forward=1500,auto --pair backward=1200,9251 --baseline -- python train.py"
    )
    assert apply_at([("forward", {"core_mhz": None, "mem_mhz": "auto"})]) == ""


def test_commands_name_what_is_not_the_default():
    source = ChoiceSource("p.parquet", "by_clock.json", {"granularity": "pass"})
    assert source.choose(0.6, True) == (
        "kernel-dvfs choose p.parquet --granularity pass --slack 0.6 --walk by_clock.json -o clocks.json"
    )
    spaced = shlex.split(ChoiceSource("my study/p.parquet", "my study/by_clock.json").choose(0, True))
    assert spaced[2] == "my study/p.parquet" and spaced[-3] == "my study/by_clock.json"
    assert ChoiceSource("p.parquet").choose(0, True) == "kernel-dvfs choose p.parquet -o clocks.json"


# --- of a profile and a schedule alone --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--slack", "2"), "--slack 2 -o"),
        (("--objective", "edp"), "--scope global --objective edp -o"),
        (("--scope", "local", "--slack", "3"), "--scope local --objective waste --slack 3 -o"),
        (("--weights", "raw", "--ties", "untied"), "--weights raw --ties untied -o"),
        (("--scope", "single"), "--scope single --objective waste -o"),
    ],
)
def test_the_page_of_a_schedule_stands_at_its_own_choice_with_its_own_command(
    study, tmp_path, capsys, monkeypatch, words, said
):
    table, about, _ = read_profile(study / "profile.parquet")
    columns = {name: table[name].to_pylist() for name in table.column_names}
    write_profile(tmp_path / "p.parquet", columns, about["gpu"], about["workload"], about["settings"])
    monkeypatch.chdir(tmp_path)
    assert main(["choose", "p.parquet", *words, "-o", "s.json", "--json"]) == 0
    chosen = json.loads(capsys.readouterr().out)
    assert main(["report", "p.parquet", "s.json"]) == 0
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    first = re.search(r'data-first="([^"]*)"', page.html)[1]
    assert first == ("2 % longer" if words[1] == "2" else "no longer" if words[0] == "--weights" else "as asked")
    rows = [{name: value for name, (value, _) in row.items()} for row in page.rows("stops")]
    is_single = words[1] == "single"
    title = f"As asked: one pair for the run; else c{FREE_TITLE[1:]}" if is_single else FREE_TITLE
    (row,) = (row for row in rows if row["limit"] == first and row["way"] == title)
    assert ("kernels" in row["clocks"]) is not is_single
    assert page.text.count(", each kernel launched once; against auto.") == (words[0] == "--weights")
    assert said in row["command"] and page.faults == []
    assert abs(percent(row["energy"]) - chosen["energy_change_percent"]) <= 0.0501
    assert abs(percent(row["time"]) - chosen["time_change_percent"]) <= 0.0501
    heading = re.search(r"<h1>(.*?)</h1>", page.html)[1]
    assert f"{-chosen['energy_change_percent']:.1f} %" in heading
    assert heading.startswith("One pair for the run would save " if is_single else "Clocks per kernel would save ")
    card = re.search(rf'<section class="way one" data-way="{ONE_TITLE}".*?</section>', page.html, re.DOTALL)[0]
    shown = dict(re.findall(r'data-cell="(\w+)"[^>]*>([^<]*)<', card))
    assert shown.keys() == {"energy", "time", "takes", "how", "clocks", "note", "command"}
    is_empty = first == "as asked" and not is_single
    assert (shown["note"] == "none here", "<p hidden>" in card) == (is_empty, is_empty)
    if is_single:
        assert (shown["energy"], shown["clocks"]) == (row["energy"], row["clocks"])
        assert shown["command"].startswith("kernel-dvfs apply --pair ")
