"""The board is heated once, not by every measuring process, and the user is told while it is."""

import json

import pytest

from kernel_dvfs.measurement.real.plateau import Plateau

# a second window begins where the first has left the board
HOT = {"temperature": "plateau", "band_c": 5, "windows": 2, "max_windows": 2, "energy_ci_percent": 20}


@pytest.fixture
def hot(lab):
    """A lab and what it told at the first point, whose board came to its plateau by itself."""
    made = lab()
    done, record = made.measure(pair="auto,auto", target="forward_gelu", **HOT)
    assert done.returncode == 0 and record["verdict"] == "ok", done.stderr
    return made, done.stderr, record


def plateau_file(made):
    (path,) = made.folder.glob("results/*/plateau.json")
    return path


def test_the_user_is_told_while_the_board_is_heated(hot):
    made, said, record = hot
    assert "being heated to where its heaviest kernel keeps it" in said and "points start from there" in said
    assert record["run"]["spent_s"]["conditioning"] > 30
    assert json.loads(plateau_file(made).read_text())["hot_c"] > 40


def test_the_next_measuring_process_need_not_look_for_it(hot):
    made, _, _ = hot
    made.stop()
    done, record = made.measure(pair="auto,auto", target="forward_gelu", **HOT)
    assert "heated" not in done.stderr and record["verdict"] == "ok", done.stderr
    assert record["run"]["spent_s"]["conditioning"] < 10


def test_a_study_in_another_folder_keeps_it_there(hot):
    made, _, _ = hot
    made.stop()
    plateau_file(made).unlink()
    words = ("--gpu", made.setup(), "--target", "forward_gelu", "--clocks", "auto,auto", "-o", "r1.json")
    done = made.command("measure", *words)
    assert done.returncode == 0 and "heated" in done.stderr, done.stderr
    (path,) = made.folder.rglob("plateau.json")
    assert path.parents[1] == made.folder / "r"


def test_a_plateau_that_no_longer_holds_is_looked_for_again(hot):
    made, _, _ = hot
    made.stop()
    path = plateau_file(made)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"hot_c": content["hot_c"] - 12}))
    done, record = made.measure(pair="auto,auto", target="forward_gelu", **HOT)
    assert record["verdict"] == "ok" and "being heated" in done.stderr, record
    assert json.loads(path.read_text())["hot_c"] == pytest.approx(content["hot_c"], abs=2)


@pytest.mark.parametrize(
    "changed",
    [{"of": "another load"}, {"boot_id": "another"}, {"found_s": 0}, {"hot_c": "hot"}, {"hot_c": None}, {"schema": 1}],
)
def test_one_of_another_load_boot_or_day_is_none(tmp_path, changed):
    kept = Plateau(str(tmp_path / "board"), "load")
    assert kept.known_c() is None
    kept.keep(61)
    assert kept.known_c() == 61
    path = tmp_path / "board/plateau.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    assert kept.known_c() is None
    path.write_text("{")
    assert kept.known_c() is None
    kept.forget()
    kept.forget()
    assert not path.exists()
