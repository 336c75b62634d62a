"""The pictures and the pages of the docs show the results that are kept here, as today's code draws and writes them."""

import json
import sys

import pytest
from PIL import Image

from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import plan


@pytest.fixture(scope="module")
def maker(script):
    return script("docs/make_figures.py")


def test_no_picture_and_no_page_is_stale(maker):
    assert maker.stale() == [], "python docs/make_figures.py (its --help says what it needs)"


def test_the_kept_default_study_is_one_of_the_configuration_that_is_shipped(maker, root, tmp_path):
    """Else its numbers, and those of the pages that quote them, are of another GPU, workload or protocol."""
    about = json.loads((maker.RESULTS / "default_study/study.json").read_text("utf-8"))
    now = plan(load(str(root / "config.yaml")), str(tmp_path))
    assert now.setup.path.endswith(f"/{about['setup']}.json"), (
        "run the default study again (make run), then python docs/make_figures.py --study ITS-FOLDER"
    )


@pytest.fixture
def drawn(maker, tmp_path, monkeypatch):
    """A folder with one picture, of results of its own, drawn a moment ago."""
    monkeypatch.setattr(maker, "FOLDER", tmp_path / "figures")
    monkeypatch.setattr(maker, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(maker, "ROOT", tmp_path)
    monkeypatch.setattr(maker, "PAGES", {})
    for folder in ("figures", "results"):
        (tmp_path / folder).mkdir()
    (tmp_path / "results/numbers.csv").write_text("1,2\n")
    (tmp_path / "code.py").write_text(
        '"""Draws."""\n# why\n@OUTPUTS.figure("said")\ndef one():\n    return width\nwidth = 3\nother = 1\n'
    )

    def write(_, path):
        Image.new("RGB", (400, 200), "white").save(path, dpi=(100, 100))

    monkeypatch.setattr(maker, "PICTURES", {"one": maker.Picture(("numbers.csv",), ("code.py::one",), write)})
    maker.draw("one")
    return tmp_path


def test_a_picture_that_was_just_drawn_is_fresh_and_shows_its_digest(maker, drawn):
    assert maker.stale() == []
    with Image.open(drawn / "figures/one.png") as image:
        assert image.width == 400 and image.height > 200
        small_print = image.convert("L").crop((0, 200, 400, image.height))
        assert small_print.getextrema()[0] < 150, "no small print"
        assert image.text["Inputs"] == maker.digest([drawn / "results/numbers.csv"])


def test_other_numbers_and_other_code_make_a_picture_stale(maker, drawn):
    (drawn / "results/numbers.csv").write_text("1,3\n")
    (line,) = maker.stale()
    assert line == "one.png: drawn from other content of numbers.csv"
    maker.draw("one")
    assert maker.stale() == []
    (drawn / "code.py").write_text('@OUTPUTS.figure("said")\ndef one():\n    return width\nwidth = 4\n')
    (line,) = maker.stale()
    assert line == "one.png: drawn from other content of code.py::one"


def test_comments_docstrings_and_what_neither_draws_nor_is_used_make_none_stale(maker, drawn):
    declared = '@OUTPUTS.figure(\n    "said otherwise"\n)\ndef one():\n    """It."""\n    return width\n'
    code = f'"""Draws it."""\n\n{declared}width = 3\nother = 2\n'
    (drawn / "code.py").write_text(code)
    assert maker.stale() == []


def test_a_picture_that_is_gone_and_one_that_nobody_draws_are_named(maker, drawn):
    (drawn / "figures/one.png").rename(drawn / "figures/two.png")
    assert maker.stale() == ["two.png: not in PICTURES", "one.png: missing"]


def test_what_needs_a_study_is_not_drawn_without_one(maker, drawn, monkeypatch):
    picture = maker.Picture(("numbers.csv",), ("code.py",), lambda study, path: None, needs="study")
    monkeypatch.setitem(maker.PICTURES, "one", picture)
    with pytest.raises(maker.CannotDraw, match="--study DIR"):
        maker.draw("one")


def test_what_is_kept_of_a_study_is_the_studys_own(maker, drawn, monkeypatch):
    study = drawn / "study"
    (study / "tables").mkdir(parents=True)
    (study / "tables/headline.csv").write_text("a\n1\n")
    kept = maker.Kept("kept", {"headline.csv": "tables/headline.csv"}, lambda folder: {"subject": folder.name})
    monkeypatch.setitem(maker.STUDIES, "study", kept)
    maker.keep("study", study)
    assert (drawn / "results/kept/headline.csv").read_text() == "a\n1\n"
    assert json.loads((drawn / "results/kept/study.json").read_text()) == {"subject": "study"}


def test_of_a_study_that_is_not_finished_nothing_is_kept(maker, drawn, monkeypatch, capsys):
    """Else tables of two studies would lie side by side."""
    files = {"a.csv": "tables/a.csv", "b.csv": "tables/b.csv"}
    monkeypatch.setitem(maker.STUDIES, "study", maker.Kept("kept", files, lambda folder: {}))
    (drawn / "half/tables").mkdir(parents=True)
    (drawn / "half/tables/a.csv").write_text("a\n1\n")
    for folder, lacks in (("nowhere", "tables/a.csv, tables/b.csv"), ("half", "tables/b.csv")):
        monkeypatch.setattr(sys, "argv", ["make_figures.py", "--study", str(drawn / folder)])
        assert maker.main() == 2
        assert capsys.readouterr().err == f"error: --study {drawn / folder}: no finished study, it lacks {lacks}\n"
        assert not (drawn / "results/kept").exists()


@pytest.fixture(scope="module")
def as_they_are(maker):
    """{picture: its digests today}"""
    return {name: maker.digests(picture) for name, picture in maker.PICTURES.items()}


_OF_PIPELINE = {"pipeline_frontier", "pipeline_timeline", "pipeline_straggler"}


@pytest.mark.parametrize(
    ("file", "pictures"),
    [
        ("workload/table1.py", {"fig5_kernels_h200"}),
        ("change.py", _OF_PIPELINE),
        ("../kernel_dvfs_pipeline/study.py", _OF_PIPELINE),
        ("../kernel_dvfs_pipeline/report/paper.py", {"pipeline_straggler"}),
        ("report/page/answer.py", {"report_page"}),
        ("report/page/templates/study.html.j2", {"report_page"}),
        ("report/page/templates/parts.html.j2", {"report_page"}),
    ],
)
def test_what_a_picture_takes_names_and_numbers_from_makes_it_stale_too(
    maker, as_they_are, root, tmp_path, monkeypatch, file, pictures
):
    for name in {name.partition("::")[0] for picture in maker.PICTURES.values() for name in picture.code}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((root / name).read_bytes())
    monkeypatch.setattr(maker, "ROOT", tmp_path)
    changed = tmp_path / "workflow/kernel_dvfs" / file
    changed.write_text(changed.read_text("utf-8") + "\nmore = 1\n", "utf-8")
    now = {name: maker.digests(picture) for name, picture in maker.PICTURES.items()}
    assert {name for name in now if now[name] != as_they_are[name]} == pictures


def test_a_plan_or_a_bound_that_is_drawn_but_not_kept_makes_the_kept_study_another(maker, tmp_path, monkeypatch):
    from kernel_dvfs_pipeline import study as pipeline_study

    class Made(dict):
        def __missing__(self, key):
            return [12] if key == "microbatches" else key

        def solved(self, microbatches):
            return tmp_path / f"mb{microbatches}"

    monkeypatch.setattr(pipeline_study, "PipelineStudy", lambda folder: Made())
    (tmp_path / "mb12/plans").mkdir(parents=True)
    found = [maker._about_pipeline(tmp_path)["drawn_sha256"]]
    for name in ("frontier.csv", "plans/all-max.json", "plans/one-clock.json"):
        (tmp_path / "mb12" / name).write_text("1")
        found.append(maker._about_pipeline(tmp_path)["drawn_sha256"])
    assert len(set(found)) == 4


# --- pages ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def page(maker, drawn, monkeypatch):
    """docs/reproduce.md in that folder, with one place for numbers."""
    path = drawn / "docs/reproduce.md"
    path.parent.mkdir()
    path.write_text("# Ours\n\n<!-- said -->\nold\n<!-- end of said -->\n\nBelow.\n")
    monkeypatch.setattr(maker, "PAGES", {"reproduce.md": {"said": lambda: "| 1 |\n| 2 |"}})
    return path


def test_a_page_with_other_numbers_is_stale_until_it_is_written(maker, page, monkeypatch):
    assert maker.stale() == ["reproduce.md: its numbers are not those of the kept results"]
    monkeypatch.setattr(sys, "argv", ["make_figures.py", "one"])
    assert maker.main() == 0 and maker.stale() == []
    assert page.read_text() == "# Ours\n\n<!-- said -->\n| 1 |\n| 2 |\n<!-- end of said -->\n\nBelow.\n"


def test_a_page_without_a_place_for_its_numbers_is_refused_in_a_line(maker, page, monkeypatch, capsys):
    page.write_text("# Ours\n\n<!-- said -->\nold\n")
    monkeypatch.setattr(sys, "argv", ["make_figures.py", "one"])
    assert maker.main() == 2
    assert capsys.readouterr().err == "error: reproduce.md: no <!-- said --> and <!-- end of said -->\n"


def test_what_the_page_against_the_paper_says_is_what_was_kept(maker, drawn, monkeypatch):
    def keep(name, text):
        path = drawn / f"results/default_study/{name}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    keep("validation", "quantity,fresh_change_percent\ntime,0.287\nenergy,-6.341\n")
    fresh = "schedule,fresh_time_change_percent,fresh_energy_change_percent\n"
    keep("headline", f"{fresh}kernel-global-waste-slack0,-0.081,-12.453\nkernel-global-waste-slack0.6,0.503,-14.7\n")
    changes = "schedule,time_change_percent,energy_change_percent\n"
    keep("strategies", f"{changes}kernel-global-waste-slack0,-0.001,-6.597\npass-global-waste-slack0,-0.158,-3.122\n")
    claims = "1,It | is,2,1 (< 2),holds,\n2,So,not known,it 3 (= 4),differs,it: not = 4; a < b\n"
    # the number that breaks its rule, though another is judged before it and a third has the start of its name
    claims += "3,Too,?,time 9 (> 8); time of it 5; time of it 7 (> 8),differs,time of it: not > 8; a < b\n"
    claims += "4,Far,?,,not testable,\n"
    keep("claims", f"number,claim,paper,ours,verdict,why\n{claims}")
    from experiments.calibration import claims as seeds

    drawn_boards = ("default", "default", "earlier")
    letters = [
        {"board": board, "1": "h", "2": letter, "3": "d", "4": "n"} for board, letter in zip(drawn_boards, "hdh")
    ]
    monkeypatch.setattr(seeds, "read", lambda path: letters)
    assert "-6.34 % energy at +0.29 % time" in maker._answer() and "-14.70 % at +0.50 %" in maker._answer()
    assert "4 claims 1 hold, 2 differ and 1 cannot be tested" in maker._answer()
    lines = maker._headlines().splitlines()
    assert lines[2].endswith("| -6.60 % | -6.34 % | -12.45 % | -14.70 % |")
    assert lines[3].endswith("| 0.00 % | +0.29 % | -0.08 % | +0.50 % |")
    assert lines[4].endswith("| -3.12 % | not measured again | not measured again | not measured again |")
    assert maker._claims().splitlines() == [
        "|  | differs | here, in brackets the rule | holds, of 2 draws | why |",
        "|---|---|---|---|---|",
        "| 2 | So | it 3 (= 4) | 1 of 2 | a &lt; b |",
        "| 3 | Too | time of it 7 (> 8) | never | as 2 |",
        "",
        "**Holds always**: 1.",
        "",
        "**Not testable**: (4) Far.",
    ]
    (drawn / "results/default_study/claims.csv").unlink()
    with pytest.raises(maker.CannotDraw, match=r"claims\.csv of the default study is not kept: --study DIR"):
        maker._claims()
