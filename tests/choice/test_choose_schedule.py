"""A profile in, a schedule out: every target has its clocks, and the numbers follow from the profile's rows."""

import json

import pyarrow as pa
import pytest
from whole_schedule import whole_schedule

from kernel_dvfs.choice.schedule import choose
from kernel_dvfs.choice.schedule_file import pairs_of, read_schedule
from kernel_dvfs_clocks.clocks import Pair
from kernel_dvfs_clocks.errors import InputError
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
    "walk",
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


def walked(targets, **changed):
    """A walk of four blocks that ended at these clocks, {target: [core, mem]}."""
    return {
        "schedules": 7,
        "passed": 3,
        "pairs": targets,
        "time_percent": [-0.7, 0.4, -1.1, -0.2],
        "energy_percent": -4.2,
        "energy_se_percent": 0.3,
        "over_percent": 10,
        "another_minute": 0.007,
    } | changed


SLOW_A = {"a": [1470, 5001], "b": ["auto", "auto"], "c": ["auto", "auto"]}
FAST_BC = {"a": ["auto", "auto"], "b": [1470, 5001], "c": [1470, 5001]}
ALL_AT_AUTO = {target: ["auto", "auto"] for target in "abc"}


def test_a_walked_schedule_claims_the_time_of_its_blocks_and_the_energy_of_its_estimate():
    """Mean time -0.4 %; squares about it sum to 1.26; of 3 degrees of freedom, t(0.9) = 1.637744."""
    schedule = choose(profile(ROWS), slack_percent=5, walked=walked(SLOW_A))
    assert list(schedule) == CONTRACT and json.loads(json.dumps(schedule, allow_nan=False)) == schedule
    assert schedule["targets"]["a"] == {"core_mhz": 1470, "mem_mhz": 5001}
    assert schedule["targets"]["b"] == schedule["targets"]["c"] == {"core_mhz": "auto", "mem_mhz": "auto"}
    assert (schedule["time"], schedule["energy"]) == pytest.approx((9.96, 57.48))
    assert (schedule["time_change_percent"], schedule["energy_change_percent"]) == pytest.approx((-0.4, -4.2))
    assert schedule["edp_change_percent"] == pytest.approx(100 * (0.996 * 0.958 - 1))
    walk = schedule["walk"]
    assert walk["time_se_percent"] == pytest.approx((1.26 / 3 / 4) ** 0.5)
    assert walk["energy_se_percent"] == 0.3
    assert walk["time_bound_percent"] == pytest.approx(-0.4 + 1.637744354 * (1.26 / 3 / 4) ** 0.5, rel=1e-9)
    assert (walk["blocks"], walk["schedules"], walk["passed"], walk["over_percent"]) == (4, 7, 3, 10)
    assert walk["another_minute"] == 0.007
    for word in ("3 of 7 schedules", "confidence of 90 %", "4 blocks", "the last of them is chosen"):
        assert word in schedule["proof"]


def test_a_bound_of_less_chance_to_be_over_is_farther_from_the_mean():
    """t of 3 degrees of freedom at 0.975: 3.182446305."""
    bound = choose(profile(ROWS), walked=walked(SLOW_A, over_percent=2.5))["walk"]["time_bound_percent"]
    assert bound == pytest.approx(-0.4 + 3.182446305 * (1.26 / 12) ** 0.5, rel=1e-9)


@pytest.mark.parametrize(
    ("targets", "slack_percent", "reserve_percent", "lower_bound", "waste"),
    [
        # 10.2 s and 54 J by the profile, where 9.8 s and 52 J are possible; b and c alone: 9.6 s and 58 J
        (SLOW_A, 5, 3, 52, 2),
        (SLOW_A, 1, 0, 52, 2),
        (FAST_BC, 0, 4, 52, 0),
        # within 9.7 s
        (FAST_BC, -3, 1, 58, 0),
        # over its limit by the profile: what is possible in its own time
        (FAST_BC, -4.5, 0, 58, 0),
        (ALL_AT_AUTO, 2.5, 2.5, 52, 8),
    ],
)
def test_reserve_bound_and_waste_of_a_walk_are_told_by_the_profile(
    targets, slack_percent, reserve_percent, lower_bound, waste
):
    schedule = choose(profile(ROWS), slack_percent=slack_percent, walked=walked(targets))
    assert schedule["walk"]["reserve_percent"] == pytest.approx(reserve_percent, abs=1e-9)
    assert schedule["lower_bound_energy"] == pytest.approx(lower_bound, rel=1e-8)
    assert (schedule["waste_j"], schedule["baseline_waste_j"]) == pytest.approx((waste, 8), abs=1e-9)


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_a_walk_that_passed_nothing_stays_at_auto_and_claims_nothing(blocks):
    """Of no block where a path held nothing but auto."""
    schedule = choose(profile(ROWS), walked=walked(ALL_AT_AUTO, passed=0, time_percent=[0.0] * blocks))
    assert schedule["targets"] == {name: {"core_mhz": "auto", "mem_mhz": "auto"} for name in "abc"}
    assert (schedule["time"], schedule["energy"]) == (10, 60) and schedule["walk"]["blocks"] == blocks
    assert {schedule["walk"][name] for name in schedule["walk"] if name.startswith(("time", "energy"))} == {0}
    assert "0 of 7 schedules" in schedule["proof"] and "all stay at the baseline" in schedule["proof"]


@pytest.mark.parametrize(
    ("asked", "changed", "said"),
    [
        ({"scope": "local"}, {}, "belongs to global waste weighted by counts, not local waste counts"),
        ({"objective": "edp"}, {}, "not global edp counts"),
        ({"weights": "raw"}, {}, "not global waste raw"),
        ({}, {"pairs": {"a": [1470, 5001]}}, "no one pair of clocks for b; run snakemake again"),
        ({}, {"pairs": FAST_BC | {"c": ["auto", "auto"]}}, "no one pair of clocks for b"),
        ({}, {"pairs": SLOW_A | {"a": [1470, "auto"]}}, "a at 1470-auto is not in the profile; run snakemake again"),
        ({}, {"time_percent": [1.0]}, "at least two blocks"),
    ],
)
def test_a_walk_of_another_question_or_profile_is_refused(asked, changed, said):
    with pytest.raises(InputError, match=f"^choice: .*{said}"):
        choose(profile(ROWS), **asked, walked=walked(SLOW_A, **changed))


def test_identical_launches_that_are_not_tied_may_have_clocks_of_their_own_in_a_walk():
    pairs = FAST_BC | {"c": ["auto", "auto"]}
    targets = choose(profile(ROWS), ties="untied", walked=walked(pairs))["targets"]
    assert targets["b"]["core_mhz"] == 1470 and targets["c"]["core_mhz"] == "auto"


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
