"""The Prometheus text of a study: read by the rules of its format, and no other numbers than the study's."""

import csv
import json
import math
import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "page"))
from made_up_study import made_up

from kernel_dvfs.cli.main import main
from kernel_dvfs.layout import STRICT

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
_SAMPLE = re.compile(rf"({_NAME})\{{({_LABEL}(?:,{_LABEL})*)\}} (\S+)")
_UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def parsed(text):
    """{(name, ((label, value), ...)): number}, by the rules of the text format 0.0.4."""
    assert text.endswith("\n") and "\r" not in text
    found, seen, current = {}, {}, None
    for line in text.splitlines():
        if comment := re.fullmatch(rf"# (HELP|TYPE) ({_NAME}) (.+)", line):
            kind, name, about = comment.groups()
            assert kind not in seen.setdefault(name, {}), "once a metric"
            assert kind == "HELP" or about in ("counter", "gauge", "histogram", "summary", "untyped")
            seen[name][kind], current = about, name
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample, line
        name, labels, value = sample.groups()
        assert name == current and seen[name].keys() == {"HELP", "TYPE"}, "all of a metric together, below its type"
        pairs = tuple(
            (pair.partition("=")[0], re.sub(r"\\.", lambda each: _UNESCAPED[each[0]], pair.partition("=")[2][1:-1]))
            for pair in re.findall(_LABEL, labels)
        )
        assert len(dict(pairs)) == len(pairs) and (name, pairs) not in found, "no series twice"
        found[name, pairs] = float(value)
        assert math.isfinite(found[name, pairs])
    return found


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("results") / "sim-toy-1/toy-b40-tp1")


def test_it_tells_saving_time_and_clocks_as_the_study_has_them(study, tmp_path):
    path = tmp_path / "kernel_dvfs.prom"
    assert main(["report", str(study), "-o", str(tmp_path / "page.html"), "--prometheus", str(path)]) == 0
    found = parsed(path.read_text("utf-8"))
    common = (("gpu", "simulated Toy <1>"), ("workload", "toy-b40-tp1"), ("is_simulated", "true"))
    (row,) = csv.DictReader((study / "tables/headline.csv").open())
    for quantity in ("energy", "time"):
        for how, bound, column in (
            ("measured_again", "mean", "change"),
            ("measured_again", "low", "low"),
            ("measured_again", "high", "high"),
        ):
            key = f"kernel_dvfs_{quantity}_change_ratio", (*common, ("how", how), ("bound", bound))
            assert found[key] == pytest.approx(float(row[f"fresh_{quantity}_{column}_percent"]) / 100)
    schedule = json.loads((study / f"schedules/{STRICT}.json").read_text())
    claimed = "kernel_dvfs_energy_change_ratio", (*common, ("how", "claimed"), ("bound", "mean"))
    assert found[claimed] == pytest.approx(schedule["energy_change_percent"] / 100)
    cores = {dict(labels)["kernel"]: value for (name, labels), value in found.items() if "core_clock" in name}
    wanted = {id: 1e6 * own["core_mhz"] for id, own in schedule["targets"].items() if own["core_mhz"] != "auto"}
    assert cores == wanted and cores
    assert not any("memory_clock" in name for name, _ in found), "all memory clocks are left at auto"


def test_names_that_hold_quotes_and_backslashes_are_escaped(study, tmp_path, monkeypatch):
    from kernel_dvfs.report.results import Results

    strange = 'a "b" \\ c\nd'
    monkeypatch.setattr(Results, "subject", strange)
    path = tmp_path / "k.prom"
    assert main(["report", str(study), "-o", str(tmp_path / "page.html"), "--prometheus", str(path)]) == 0
    assert {dict(labels)["gpu"] for _, labels in parsed(path.read_text("utf-8"))} == {strange}


@pytest.mark.parametrize("name", ["", "k.txt", "prom"])
def test_a_file_that_node_exporter_would_not_read_is_refused_before_anything_is_written(study, tmp_path, name, refused):
    page = tmp_path / "page.html"
    assert "expected FILE.prom" in refused("report", study, "-o", page, "--prometheus", name and tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_study_without_an_answer_has_its_page_and_says_that_there_are_no_metrics(study, tmp_path, refused):
    own = shutil.copytree(study, tmp_path / "own")
    (own / f"schedules/{STRICT}.json").unlink()
    said = refused("report", own, "--prometheus", tmp_path / "k.prom")
    assert f"{own}/report.html is written, {tmp_path}/k.prom is not: " in said and f"{STRICT}.json" in said
    assert (own / "report.html").is_file() and not (tmp_path / "k.prom").exists()


def test_metrics_of_a_forecast_are_called_so(tmp_path):
    own, path = made_up(tmp_path / "sim-toy-1/toy-b40-tp1", forecast=True), tmp_path / "k.prom"
    assert main(["report", str(own), "--prometheus", str(path)]) == 0
    labels = [dict(labels) for name, labels in parsed(path.read_text("utf-8")) if name.endswith("_change_ratio")]
    assert {(own["how"], own["bound"]) for own in labels} == {
        ("claimed", "mean"),
        *(("forecast", bound) for bound in ("mean", "low", "high")),
    }


def test_as_json_the_page_and_the_metrics_are_named(study, tmp_path, capsys):
    page, path = str(tmp_path / "page.html"), str(tmp_path / "k.prom")
    assert main(["report", str(study), "-o", page, "--prometheus", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["page"], found["prometheus"]) == ("kernel-dvfs/page/1", page, path)
