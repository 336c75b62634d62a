"""A profile in, a schedule out: every target has its clocks, and the numbers follow from the profile's rows."""

import json

import numpy as np
import pyarrow as pa
import pytest
from whole_schedule import whole_schedule

from kernel_dvfs.choice.schedule import choose
from kernel_dvfs.choice.schedule_file import pairs_of, read_schedule
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import Pair
from profiles import profile

CONTRACT = [
    "schema",
    "gpu",
    "workload",
    "granularity",
    "scope",
    "objective",
    "slack_percent",
    "weights",
    "ties",
    "status",
    "proof",
    "baseline_time",
    "baseline_energy",
    "time",
    "energy",
    "time_change_percent",
    "energy_change_percent",
    "edp_change_percent",
    "lower_bound_energy",
    "waste_j",
    "baseline_waste_j",
    "margin",
    "pooled",
    "apart",
    "targets",
]

ROWS = [
    ("a", 2, None, None, 1.0, 10.0),
    ("a", 2, 1470.0, 5001.0, 1.1, 7.0),
    ("b", 1, None, None, 4.0, 20.0, {"replicate_group": "g"}),
    ("b", 1, 1470.0, 5001.0, 3.8, 19.0, {"replicate_group": "g"}),
    ("c", 1, None, None, 4.0, 20.0, {"replicate_group": "g"}),
    ("c", 1, 1470.0, 5001.0, 3.8, 19.0, {"replicate_group": "g"}),
]


def test_the_schedule_carries_what_the_contract_names_and_is_json():
    schedule = choose(profile(ROWS))
    assert list(schedule) == CONTRACT
    assert json.loads(json.dumps(schedule, allow_nan=False)) == schedule


def test_totals_changes_and_waste_follow_from_the_rows():
    schedule = choose(profile(ROWS), scope="global", objective="waste", slack_percent=0)
    assert schedule["targets"] == {name: {"core_mhz": 1470, "mem_mhz": 5001} for name in "abc"}
    assert (schedule["baseline_time"], schedule["baseline_energy"]) == pytest.approx((10, 60))
    assert (schedule["time"], schedule["energy"]) == pytest.approx((9.8, 52))
    assert schedule["time_change_percent"] == pytest.approx(-2)
    assert schedule["energy_change_percent"] == pytest.approx(-100 * 8 / 60)
    assert schedule["edp_change_percent"] == pytest.approx(100 * (9.8 * 52 / 600 - 1))
    assert (schedule["waste_j"], schedule["baseline_waste_j"]) == pytest.approx((0, 8))


def test_local_keeps_auto_where_only_another_target_has_time_to_give():
    slower = [(name, 1, 1260.0, 5001.0, 3.9, 18.5, {"replicate_group": "g"}) for name in "bc"]
    schedule = choose(profile([*ROWS, *slower]), scope="local")
    assert schedule["targets"]["a"] == {"core_mhz": "auto", "mem_mhz": "auto"}
    assert schedule["targets"]["b"] == {"core_mhz": 1260, "mem_mhz": 5001}
    # a slower and b, c faster take 9.8 s as well, with 52 J in place of 57
    assert (schedule["time"], schedule["energy"], schedule["waste_j"]) == pytest.approx((9.8, 57, 5))


def test_weights_default_to_the_kind_of_gpu():
    assert choose(profile(ROWS))["weights"] == "counts"
    assert choose(profile(ROWS, kind="table"))["weights"] == "raw"
    assert choose(profile(ROWS, kind="table"), weights="equal-time")["baseline_time"] == pytest.approx(3)


@pytest.mark.parametrize("scope", ["single", "local", "global"])
def test_what_cannot_be_reached_is_infeasible_without_targets(scope):
    schedule = choose(profile(ROWS), scope=scope, slack_percent=-50)
    assert (schedule["status"], schedule["targets"], schedule["energy"]) == ("infeasible", {}, None)
    assert schedule["baseline_waste_j"] == pytest.approx(8)
    json.dumps(schedule, allow_nan=False)


@pytest.mark.parametrize("objective", ["edp", "energy"])
def test_only_waste_has_a_slack(objective):
    assert choose(profile(ROWS), objective=objective, slack_percent=5)["slack_percent"] is None


def test_a_file_a_table_and_columns_give_the_same_schedule(tmp_path):
    store = pytest.importorskip("kernel_dvfs.profile.store")
    columns = profile(ROWS)
    metadata = columns.pop("metadata")
    columns |= {"reached_core_mhz": [None] * 6, "reached_mem_mhz": [None] * 6}
    columns |= {"time_sd_s": [None] * 6, "energy_sd_j": [None] * 6}
    path = tmp_path / "profile.parquet"
    store.write_profile(path, columns, metadata["gpu"], metadata["workload"], metadata["settings"])
    table = pa.table(columns).replace_schema_metadata({b"kernel_dvfs": json.dumps(metadata)})
    schedule = choose({**columns, "metadata": metadata})
    assert choose(path) == choose(str(path)) == choose(table) == schedule


def test_what_is_no_profile_is_refused(tmp_path):
    (tmp_path / "x.parquet").write_text("x")
    for wrong in (tmp_path / "x.parquet", tmp_path / "absent.parquet", pa.table({"a": [1]})):
        with pytest.raises(InputError):
            choose(wrong)
    with pytest.raises(InputError, match="granularity"):
        choose(profile(ROWS), granularity="layer")


def test_choosing_is_the_same_every_time():
    assert choose(profile(ROWS)) == choose(profile(ROWS))


def test_the_margin_told_is_all_of_the_distance_that_was_kept_from_the_limit():
    """Slow and cheap or fast and dear, both checked: what choosing flatters is part of it."""
    se, rows = {"n": 5, "time_se_s": 0.01, "energy_se_j": 0.01}, []
    draw = np.random.default_rng(2).normal(0, 0.01, (60, 2))
    for number, (slow, fast) in enumerate(draw):
        rows += [
            (f"k{number}", 1, None, None, 1.0, 1.0, se | {"is_checked": False}),
            (f"k{number}", 1, 1470.0, 5001.0, 1.01 + slow, 0.8, se | {"is_checked": True}),
            (f"k{number}", 1, 1700.0, 5001.0, 0.98 + fast, 0.9, se | {"is_checked": True}),
        ]
    found = choose(profile(rows), margin_z=2)
    margin = found["margin"]
    assert margin["checked"] and margin["bias_percent"] > 0.05 and margin["sd_percent"] > 0.05
    assert margin["time_percent"] == pytest.approx(2 * margin["sd_percent"] + margin["bias_percent"])
    assert found["time_change_percent"] <= -margin["time_percent"] + 1e-6
    # the bound is that of the limit itself: the margin is no part of it
    plain = choose(profile(rows))
    assert found["lower_bound_energy"] == pytest.approx(plain["lower_bound_energy"], rel=1e-8)
    assert plain["energy"] < found["energy"]


@pytest.fixture
def stored(tmp_path):
    """stored(targets, **changed): the path of a schedule of these clocks, and what is read of it."""

    def write(targets, **changed):
        path = tmp_path / "s.json"
        path.write_text(json.dumps(whole_schedule(targets=targets, **changed)))
        return path, read_schedule(path)

    return write


@pytest.mark.parametrize(
    ("mhz", "is_one"),
    [(1, True), (0.5, False), (0, False), (1410.0, True), (1410.5, False), (999_999, True), (1_000_000, False)],
)
def test_a_clock_that_a_gpu_can_be_asked_for_is_a_whole_number_of_mhz(stored, mhz, is_one):
    for name in ("core_mhz", "mem_mhz"):
        clocks = {"core_mhz": 900, "mem_mhz": "auto"} | {name: mhz}
        if is_one:
            pair = pairs_of(*stored({"a": clocks, "b": {"core_mhz": "auto", "mem_mhz": 5001}}))
            assert pair == {"a": Pair(clocks["core_mhz"], clocks["mem_mhz"]), "b": Pair("auto", 5001)}
            assert all(isinstance(each, (int, str)) for each in pair["a"])
        else:
            with pytest.raises(InputError, match=rf"targets\.a\.{name} is"):
                pairs_of(*stored({"a": clocks}))


@pytest.mark.parametrize(
    ("targets", "changed", "said"),
    [
        ({}, {}, "targets is empty"),
        ({}, {"status": "infeasible"}, "there is nothing to play"),
        ({"a": {"core_mhz": 900, "mem_mhz": 405, "fan": "low"}}, {}, r"targets\.a\.fan: a setting that cannot be made"),
        ({"a": {"core_mhz": 900}}, {}, r"targets\.a\.mem_mhz is None, expected a number"),
    ],
)
def test_what_cannot_be_played_is_refused_by_its_field(stored, targets, changed, said):
    with pytest.raises(InputError, match=said):
        pairs_of(*stored(targets, **changed))
