"""A results folder is read as it should be or refused by the name of the file: nothing is summed that is incomplete."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from whole_schedule import whole_schedule

from kernel_dvfs import student
from kernel_dvfs.layout import PUBLISHED, STRICT, published
from kernel_dvfs.measurement import record, setup
from kernel_dvfs.profile.store import COLUMNS, write_profile
from kernel_dvfs.report import remeasured
from kernel_dvfs.report.results import Results
from kernel_dvfs.table_file import read_rows, write_rows
from kernel_dvfs_clocks.errors import InputError

DEVICE = {
    **{"kind": "simulated", "name": "X", "uuid": "x", "driver": "x", "energy_scope": "board"},
    **{"power_limit_mw": None, "counter_period_ms": 100.0, "counter_read_ms": 4.0},
}
POINT = {
    "request": {"policy": "auto", "core_mhz": "auto", "mem_mhz": "auto", "switch_s": 0.0},
    "reached": {"core_mhz": 1650, "mem_mhz": 9251, "alias_of": None},
    "summary": {"n": 3, "time_us": 1.0, "time_sd_us": 0.1, "energy_mj": 1.0, "energy_sd_mj": 0.1, "power_mw": 1e6},
    "verdict": "ok",
    "reasons": [],
}


@pytest.fixture
def folder(tmp_path):
    """Two kernels, two repeats."""
    kernels = {name: {"launches_per_iteration": 1} for name in "ab"}
    path = setup.store(
        str(tmp_path / "setup"), {"kind": "simulated"}, {"name": "w"}, {"kernel": kernels, "pass": {}}, {"seed": 1}
    )
    for repeat in range(2):
        write(tmp_path, setup.read(path), f"repeat-{repeat}", [("a", repeat), ("b", repeat)])
    return tmp_path


def write(folder, of, name, points):
    comparisons = [
        {"target": target, "repeat": repeat, "session": "fresh-0", "points": [POINT] * 4} for target, repeat in points
    ]
    record.write_comparison(str(folder / f"{name}.json"), of, DEVICE, "s.json", comparisons)


def block(sessions, sd=1.0, seeds=2000):
    """Share of intervals that hold 0: ten repeats with scatter `sd`, each session adds an offset of scatter 3."""
    draw = np.random.default_rng(3)
    names = sorted(set(sessions))
    held = 0
    for _ in range(seeds):
        offset = dict(zip(names, 3 * draw.standard_normal(len(names))))
        found = student.interval([sd * draw.standard_normal() + offset[each] for each in sessions], sessions)
        held += found.low <= 0 <= found.high
    return held / seeds


@pytest.mark.parametrize("sessions", ["abcdefghij", "aabbccddee", "aaaaabbbbb"])
def test_an_interval_over_sessions_holds_the_truth_under_offsets_that_sessions_share(sessions):
    assert 0.93 <= block(list(sessions)) <= 0.97


def test_an_interval_within_one_session_does_not_and_says_so():
    assert block(["a"] * 10) < 0.5
    one, two = student.interval([1.0, 2.0, 3.0], ["a"] * 3), student.interval([1.0, 2.0, 3.0], ["a", "a", "b"])
    assert (one.basis, two.basis) == ("within one session", "over 2 sessions")
    assert two.mean == pytest.approx(2.25), "of the sessions' means"


def test_repeats_that_share_a_session_in_one_kernel_count_as_one_session():
    points = [("a", 0, []), ("b", 0, []), ("a", 1, []), ("b", 1, []), ("a", 2, []), ("b", 2, [])]
    found = remeasured.sessions_of(SimpleNamespace(points=points, sessions=["p", "q", "q", "q", "r", "r"]))
    assert found[0] == found[1] != found[2]


def comparisons(folder):
    return Results(folder).comparisons("repeat-0.json", "repeat-1.json")


def of(folder):
    return setup.read(str(next((folder / "setup").iterdir())))


def test_repeats_that_are_whole_are_summed(folder):
    assert sorted(remeasured.totals(comparisons(folder))) == [0, 1]


def test_a_repeat_copied_over_another_is_refused(folder):
    (folder / "repeat-1.json").write_text((folder / "repeat-0.json").read_text())
    with pytest.raises(
        InputError, match=r"appears twice \(repeat-0\.json, repeat-1\.json\); delete .* run snakemake"
    ) as no:
        comparisons(folder)
    assert str(folder) in str(no.value)


def test_a_repeat_that_lacks_a_kernel_is_refused(folder):
    write(folder, of(folder), "repeat-1", [("a", 1)])
    with pytest.raises(InputError, match=r"repeat 1 lacks b; delete .* run snakemake") as no:
        comparisons(folder)
    assert str(folder) in str(no.value)


def test_a_kernel_that_the_setup_does_not_have_is_refused(folder):
    write(folder, of(folder), "repeat-1", [("a", 1), ("b", 1), ("c", 1)])
    with pytest.raises(InputError, match=r"repeat-1\.json: its setup has no kernel c"):
        comparisons(folder)


def test_what_is_missing_in_a_row_is_read_as_nothing_and_a_text_as_it_is(tmp_path):
    missing = {"na": pd.NA, "nat": pd.NaT, "time": np.datetime64("NaT"), "nan": math.nan, "none": None}
    write_rows(tmp_path / "t.json", [missing | {"text": "nan", "number": np.float64(0.25), "yes": np.bool_(True)}])
    assert read_rows(tmp_path / "t.json") == [dict.fromkeys(missing) | {"text": "nan", "number": 0.25, "yes": True}]


def test_what_is_not_among_the_inputs_is_not_read_although_it_lies_there(folder):
    inputs = [f"{folder}/tables/here.json", f"{folder}/repeat-0.json"]
    (folder / "tables").mkdir()
    for name in ("here", "of_another_configuration"):
        write_rows(folder / f"tables/{name}.json", [{"a": 1}])
    results = Results(folder, inputs=inputs)
    assert results.has("tables/here.json") and list(results.table("here").a) == [1]
    assert not results.has("tables/of_another_configuration.json") and not results.has("tables/absent.json")
    assert Results(folder).has("tables/of_another_configuration.json"), "by hand, any is read"
    for read in (
        lambda: results.table("of_another_configuration"),
        lambda: results.comparisons("repeat-0.json", "repeat-1.json"),
        lambda: results.schedule(STRICT),
        lambda: results.variant("batch-20").own_schedule,
        lambda: results.profile,
    ):
        with pytest.raises(InputError, match="not an input of what is made"):
            read()


def test_each_procedure_has_its_own_schedules_and_repeats_and_what_has_none_reads_none(tmp_path):
    for name, energy in ((STRICT, -9.0), (published(STRICT), -12.0)):
        (tmp_path / f"schedules/{name}.json").parent.mkdir(parents=True, exist_ok=True)
        content = whole_schedule(workload={"setup": None}) | {"energy_change_percent": energy}
        (tmp_path / f"schedules/{name}.json").write_text(json.dumps(content))
    columns = {name: [None, None] for name in COLUMNS} | {"study": ["kernel"] * 2, "target": ["a", "a"]}
    columns |= {"launches_per_iteration": [1, 1], "n": [1, 1], "verdict": ["ok", "ok"], "energy_j": [1.0, 1.0]}
    columns |= {"is_baseline": [True, False], "core_mhz": [None, 1470.0]}
    gpu = {"kind": "simulated", "name": "X", "slug": "x"}
    for name, time_s in (("profile", 1.0), ("published", 2.0)):
        path = tmp_path / f"{name}.parquet"
        write_profile(path, columns | {"time_s": [time_s] * 2}, gpu, {"name": "w"}, ["core_mhz", "mem_mhz"])
    relied, own = Results(tmp_path), Results(tmp_path, PUBLISHED)
    assert [each.schedule(STRICT)["energy_change_percent"] for each in (relied, own)] == [-9.0, -12.0]
    assert [set(each.profile.time_s) for each in (relied, own)] == [{1.0}, {2.0}]
    with pytest.raises(
        InputError, match=r"measurements/validation-published-kernel-global-waste-slack0/repeat-0\.json"
    ):
        own.measured_again(STRICT, 1)
    with pytest.raises(InputError, match="belongs to a procedure"):
        Results(tmp_path, "").schedule(STRICT)
    (tmp_path / "published.parquet").unlink()
    with pytest.raises(InputError, match=r"published\.parquet: missing; run snakemake profile"):
        _ = Results(tmp_path, PUBLISHED).profile
    write_profile(
        tmp_path / "profile.parquet",
        columns | {"time_s": [1.0] * 2},
        gpu | {"kind": "table"},
        {"name": "w"},
        ["core_mhz", "mem_mhz"],
    )
    assert set(Results(tmp_path, PUBLISHED).profile.time_s) == {1.0}, "the rows of a table are what they are"


@pytest.mark.parametrize("content", [[], None, 3, "text", {}, {"workload": {"setup": None}, "targets": {}}])
def test_a_schedule_that_is_none_is_refused_by_name(tmp_path, content):
    (tmp_path / "schedules").mkdir()
    (tmp_path / "schedules/x.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"schedules/x\.json"):
        Results(tmp_path).schedule("x")
