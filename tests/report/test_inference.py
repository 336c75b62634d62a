"""What was inferred of a board: read of the board and the workload that it was inferred for, and of no other."""

import csv

import pytest
from made_up_study import made_up
from page_reader import Page

from kernel_dvfs import shipped
from kernel_dvfs.cli.main import main
from kernel_dvfs.report.inference import Band, band_of, digest
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_paper.used import claims_used, in_words

BOARD, NAME = {"id": "toy", "cap_w": 100}, "toy-b40-tp1"
ROW = {
    "figure": "kernel_energy_change",
    "unit": "percent",
    "p05": "-8.37",
    "p50": "-7.31",
    "p95": "-6.2",
    "meaning": "over the boards that fit",
    "source": "a toy's posterior",
    "board": "toy",
    "spec_digest": digest(BOARD),
    "workload": NAME,
}


def written(path, *rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ROW)
        table.writeheader()
        table.writerows(rows)
    return path


def test_it_is_that_of_kernels_on_this_board_and_workload(tmp_path):
    others = ({"figure": "pass_energy_change"}, {"spec_digest": "0" * 12}, {"workload": "toy-b20-tp1"})
    path = written(tmp_path / "band.csv", *(ROW | other | {"p05": "-99"} for other in others), ROW)
    assert band_of(BOARD, NAME, path) == Band(-8.37, -7.31, -6.2, "over the boards that fit", "a toy's posterior")
    assert band_of(BOARD | {"cap_w": 101}, NAME, path) is None
    assert band_of(BOARD, "toy-b10-tp1", path) is None


def test_a_median_need_not_be_known(tmp_path):
    found = band_of(BOARD, NAME, written(tmp_path / "band.csv", ROW | {"p50": ""}))
    assert found and (found.p05, found.p50, found.p95) == (-8.37, None, -6.2)


@pytest.mark.parametrize(
    "wrong", [{"p05": ""}, {"p05": "-6"}, {"p50": "-6"}, {"p95": "nan"}, {"p95": "much"}, {"unit": "J"}]
)
def test_what_is_no_band_is_refused_in_a_line(tmp_path, wrong):
    path = written(tmp_path / "band.csv", ROW | wrong)
    with pytest.raises(InputError, match=r"band.csv: no band of a headline .*: expected figure, unit, p05"):
        band_of(BOARD, NAME, path)


def test_a_table_of_other_columns_and_none_are_refused_likewise(tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    for name in ("other.csv", "none.csv"):
        with pytest.raises(InputError, match=f"{name}: no band"):
            band_of(BOARD, NAME, tmp_path / name)


def test_the_shipped_one_can_be_read_and_names_its_board():
    with open(shipped.POSTERIOR_BAND, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows and set(rows[0]) == set(ROW)
    assert all(float(row["p05"]) < float(row["p95"]) < 0 and len(row["spec_digest"]) == 12 for row in rows)


def page_of(folder) -> str:
    assert main(["report", str(folder)]) == 0
    return Page((folder / "report.html").read_text("utf-8")).text


def test_the_page_has_it_where_it_is_of_its_board(tmp_path, monkeypatch):
    own, other = ROW | {"spec_digest": digest({"cap_w": 100})}, ROW
    folder = made_up(tmp_path / f"sim-toy-1/{NAME}")
    monkeypatch.setattr(shipped, "POSTERIOR_BAND", written(tmp_path / "own.csv", own))
    text = page_of(folder)
    assert "energy −7.3 %, −8.4 to −6.2 % over the boards that fit" in text
    assert "Energy changes by −8.37 to −6.20 % over the boards that fit, median −7.31 % (a toy's posterior)." in text
    assert "Rests on three unmeasured figures" in text
    monkeypatch.setattr(shipped, "POSTERIOR_BAND", written(tmp_path / "other.csv", other))
    text = page_of(folder)
    assert "boards that fit" not in text and "unmeasured figures" not in text and "−8.37" not in text


USED = {
    "claim": "9",
    "group": "the headline",
    "holds_without_group": "0.37",
    "spec_digest": digest(BOARD),
    "workload": NAME,
}


def test_claims_that_a_board_was_inferred_by_are_predicted_where_they_hold_without_their_group(tmp_path):
    other = USED | {"claim": "3", "group": "clocks per pass", "holds_without_group": "0.5"}
    path = tmp_path / "claims.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, USED)
        table.writeheader()
        table.writerows([USED, other, USED | {"claim": "8", "spec_digest": "0" * 12}])
    used = claims_used(BOARD, NAME, path)
    assert used == {9: ("the headline", 0.37), 3: ("clocks per pass", 0.5)}
    assert claims_used(BOARD, "toy-b20-tp1", path) == {}
    assert in_words(9, "holds", used) == "used; predicted wrong without those on the headline (37 % of draws)"
    assert in_words(3, "differs", used) == "used; predicted right without those on clocks per pass (50 % of draws)"
    assert in_words(8, "holds", used) == "not used; predicted right"
    assert in_words(8, "differs", used) == "not used; predicted wrong"
    assert in_words(8, "not testable", used) == ""
    assert in_words(5, "holds", used) == "built in"


@pytest.mark.parametrize("wrong", [{"claim": "nine"}, {"holds_without_group": "1.2"}, {"holds_without_group": ""}])
def test_what_is_no_list_of_claims_is_refused_in_a_line(tmp_path, wrong):
    path = tmp_path / "claims.csv"
    path.write_text(",".join(USED) + "\n" + ",".join((USED | wrong).values()) + "\n")
    with pytest.raises(InputError, match=r"claims.csv: no claims of an inference .*: expected claim, group"):
        claims_used(BOARD, NAME, path)
