"""The Prometheus text of a study: read by the rules of its format, and no other numbers than the study's."""

import csv
import json
import math
import re
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
    rows = {row["quantity"]: row for row in csv.DictReader((study / "tables/validation.csv").open())}
    for quantity in ("energy", "time"):
        for how, bound, column in (
            ("validated", "mean", "fresh_change"),
            ("validated", "low", "fresh_low"),
            ("validated", "high", "fresh_high"),
        ):
            key = f"kernel_dvfs_{quantity}_change_ratio", (*common, ("how", how), ("bound", bound))
            assert found[key] == pytest.approx(float(rows[quantity][f"{column}_percent"]) / 100)
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


def test_what_is_no_study_has_no_metrics(tmp_path, capsys):
    (tmp_path / "comparison").mkdir()
    (tmp_path / "comparison/gpus.csv").write_text("gpu\nToy\n")
    assert main(["report", str(tmp_path / "comparison"), "--prometheus", str(tmp_path / "k.prom")]) == 2
    assert main(["report", "p.parquet", "s.json", "--prometheus", str(tmp_path / "k.prom")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "are of a results folder" in said[1] and not (tmp_path / "k.prom").exists()
