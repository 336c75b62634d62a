"""Visits: a record is complete or absent, answers the question that was asked, and is refused where it is damaged."""

import json
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from kernel_dvfs.measurement import visit as visits
from kernel_dvfs.measurement.visit import Visit, least_s, power_in_passes_mw, round_of
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import CHECKSUM

ASKED = Visit(3, 5, Pair(1485, 9251), 2.5, 0.5, (("forward_fc_gemm",), ("forward_gelu", "embedding_layernorm")))
VISITED = {
    "request": visits.asked(ASKED) | {"policy": "lock", "switch_s": 0.013},
    "passes": {
        "n": 7,
        "iteration_us": 311_007.5,
        "power_mw": 268_750.0,
        "is_capped": False,
        "time_us": {"forward_fc_gemm": 3119.25, "forward_gelu": 877.5, "embedding_layernorm": 301.0},
    },
    "powers": [
        {
            **{"kernels": ["forward_fc_gemm"], "duration_s": 0.51, "power_mw": 291_000.0},
            "time_us": 3120.0,
            "core_mhz": 1485,
            "is_capped": True,
        },
        {
            **{"kernels": ["forward_gelu", "embedding_layernorm"], "duration_s": 0.5, "power_mw": 207_500.0},
            **{"time_us": 21_361.0, "core_mhz": 1484.5, "is_capped": False},
        },
    ],
    "reached": {"core_mhz": 1485.0, "mem_mhz": 9251.0},
    "temp_c": [55.25, 57.0],
    "spent_s": 4.75,
    "verdict": "ok",
    "reasons": [],
}


class Visitor:
    """What a record says of a board and a run."""

    device: ClassVar = {
        **{"kind": "simulated", "name": "made up", "uuid": "made-up-7", "driver": "1.5", "power_limit_mw": 350_000},
        **{"energy_scope": "board", "counter_period_ms": 20.0, "counter_read_ms": 0.5},
    }
    run: ClassVar = {"run_id": "b-17-4"}


@pytest.fixture
def path(setup, tmp_path) -> Path:
    """A record."""
    path = tmp_path / "measurements" / visits.path(ASKED)
    visits.write(str(path), setup, Visitor(), VISITED)
    return path


def test_a_record_reads_back_and_is_plain_json(setup, path):
    found = visits.read_visit(str(path), setup, ASKED)
    assert found == json.loads(path.read_text())
    assert {name: found[name] for name in VISITED} == VISITED
    assert found["run"] == {"setup": setup.digest, "seed": setup.measurement["seed"], "run_id": "b-17-4"}
    assert found["device"] == Visitor.device
    assert list(path.parent.iterdir()) == [path], "no temporary file is left"


def test_the_same_visit_gives_the_same_bytes(setup, path):
    before = path.read_bytes()
    visits.write(str(path), setup, Visitor(), VISITED)
    assert path.read_bytes() == before and before.endswith(b"}\n")


@pytest.mark.parametrize(
    ("visit", "path"),
    [
        (ASKED, "visit/s3/5-1485-9251.json"),
        (Visit(0, 0, BASELINE, 5.0, 0.0, ()), "visit/s0/0-auto-auto.json"),
        (Visit(10_007, 12, Pair(1980, AUTO), 2.5, 0.5, ()), "visit/s10007/12-1980-auto.json"),
    ],
)
def test_a_path_tells_session_place_and_clocks(visit, path):
    assert visits.path(visit) == path


@pytest.mark.parametrize(
    "change",
    [
        {"session": 4},
        {"place": 6},
        {"pair": Pair(1470, 9251)},
        {"pair": Pair(1485, 5001)},
        {"pass_s": 5.0},
        {"window_s": 1.0},
        {"metered": ()},
        {"metered": ASKED.metered[:1]},
        {"metered": ASKED.metered[::-1]},
    ],
    ids=str,
)
def test_a_record_that_answers_another_question_is_none(setup, path, change):
    assert visits.read_visit(str(path), setup, ASKED._replace(**change)) is None


def test_a_record_of_another_setup_is_none(setup, setup_of, path):
    assert visits.read_visit(str(path), setup_of(windows=3, seed=7), ASKED) is None


def test_a_record_that_is_missing_is_named(setup, tmp_path):
    with pytest.raises(InputError, match=r"record .*0-auto-auto\.json: missing; run snakemake again"):
        visits.read_visit(str(tmp_path / "0-auto-auto.json"), setup, ASKED)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"passes": {}}, "passes.n is missing"),
        ({"passes": VISITED["passes"] | {"n": 0}}, "passes.n is 0"),
        ({"passes": VISITED["passes"] | {"power_mw": -1}}, "passes.power_mw is -1"),
        ({"passes": VISITED["passes"] | {"time_us": {"forward_gelu": -3.5}}}, "forward_gelu is -3.5"),
        ({"powers": [VISITED["powers"][0] | {"power_mw": 0}]}, "power_mw is 0"),
        ({"powers": [VISITED["powers"][0] | {"kernels": "forward_gelu"}]}, "kernels is 'forward_gelu'"),
        ({"temp_c": [55.0]}, "temp_c"),
        ({"spent_s": None}, "spent_s"),
        ({"verdict": "fine"}, "verdict is 'fine'"),
        ({"reached": {"core_mhz": 1485.0}}, "reached.mem_mhz is missing"),
        ({"request": VISITED["request"] | {"core_mhz": "slow"}}, "request.core_mhz is 'slow'"),
    ],
)
def test_a_record_of_another_shape_is_refused_in_one_line(setup, path, change, said):
    visits.write(str(path), setup, Visitor(), VISITED | change)
    with pytest.raises(
        InputError, match=rf"record {re.escape(str(path))}: .*{re.escape(said)}.*; delete it"
    ) as refused:
        visits.read_visit(str(path), setup, ASKED)
    assert "\n" not in str(refused.value)


def test_what_is_no_record_is_refused_in_one_line(setup, path):
    whole = path.read_text()
    for text in ("", "[]", "{}", "null", whole[:-40], whole.replace("visit/1", "point/1"), whole + whole):
        path.write_text(text)
        with pytest.raises(InputError, match=r"5-1485-9251\.json: .*; delete it and run snakemake again") as refused:
            visits.read_visit(str(path), setup, ASKED)
        assert "\n" not in str(refused.value)


def test_a_number_that_was_changed_or_a_checksum_that_is_gone_is_refused(setup, path):
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"spent_s": 4.76}))
    with pytest.raises(InputError, match="was changed since it was written"):
        visits.read_visit(str(path), setup, ASKED)
    path.write_text(json.dumps({name: value for name, value in content.items() if name != CHECKSUM}))
    with pytest.raises(InputError, match=f"{CHECKSUM} is missing"):
        visits.read_visit(str(path), setup, ASKED)


def test_a_bit_that_flips_anywhere_in_a_record_is_found(setup, path, fuzz):
    whole, rng = path.read_bytes(), random.Random("bits")
    expected = visits.read_visit(str(path), setup, ASKED)
    for _ in range(fuzz):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            found = visits.read_visit(str(path), setup, ASKED)
        except InputError as refused:
            assert "\n" not in str(refused)
            continue
        assert found == expected, "white space, or a digit past a float's last"


def test_a_visit_takes_settling_passes_and_its_windows(monkeypatch):
    for name, value in (("SETTLE_S", 0.625), ("AUTO_SETTLE_S", 2.25), ("KERNEL_S", 0.125)):
        monkeypatch.setattr(visits, name, value)
    assert least_s(Pair(1485, 9251), 2.5, 7, 0.5) == 0.625 + 2.5 + 7 * 0.625
    assert least_s(BASELINE, 5.5, 3, 1.0) == 2.25 + 5.5 + 3 * 1.125


def test_a_round_holds_the_fewest_launches_that_stand_to_one_another_as_in_an_iteration():
    launches = {"a": 24, "b": 36, "c": 60, "d": 7}
    assert round_of(["a", "b", "c"], launches) == {"a": 2, "b": 3, "c": 5}
    assert round_of(["a"], launches) == {"a": 1}
    assert round_of(["a", "d"], launches) == {"a": 24, "d": 7}


# --- powers in the passes ---------------------------------------------------------------------------------------------

LAUNCHES = {"a": 5, "b": 3, "x": 4, "y": 6}
ODD = SimpleNamespace(targets={"kernel": {name: {"launches_per_iteration": count} for name, count in LAUNCHES.items()}})
TIME_US = {"a": 1300.0, "b": 1700.0, "x": 110.0, "y": 70.0}
ITERATION_US = 12_460.0  # 6500 + 5100 + 440 + 420


def passed(whole_mw, *windows, policy="lock"):
    """A visit at 1500 MHz. windows: (kernels, mW, time of a round over that in the passes, MHz, is it capped)."""
    powers = []
    for names, power_mw, slower, core_mhz, is_capped in windows:
        round_us = {"a": 1300.0, "b": 1700.0, "xy": 2 * 110.0 + 3 * 70.0}[names]
        powers.append(
            {"kernels": list(names), "power_mw": power_mw, "time_us": round_us * slower}
            | {"core_mhz": core_mhz, "is_capped": is_capped}
        )
    return {
        "request": {"policy": policy},
        "passes": {"iteration_us": ITERATION_US, "power_mw": whole_mw, "time_us": TIME_US},
        "powers": powers,
        "reached": {"core_mhz": 1500.0},
    }


B, XY = ("b", 410_000, 1.0, 1500.0, False), ("xy", 230_000, 0.97, 1500.0, False)
B_MJ, XY_MJ = 5.1 * 410.0, 0.86 * 0.97 * 230.0


def test_a_window_has_the_energy_of_its_round_and_the_time_of_the_passes():
    """Whatever the passes draw: nothing is held."""
    found = power_in_passes_mw(ODD, passed(999_000, B, XY))
    assert found == pytest.approx({"b": 410_000, "x": 0.97 * 230_000, "y": 0.97 * 230_000})
    assert power_in_passes_mw(ODD, passed(1.0)) == {}


def test_a_held_kernel_takes_what_the_iteration_takes_beyond_the_free_ones():
    held = ("a", 690_000, 1.1, 1250.0, True)
    for whole_mw in (600_000, 500_000, 900_000, 3_000_000):
        found = power_in_passes_mw(ODD, passed(whole_mw, held, B, XY))
        assert found["b"] == pytest.approx(410_000) and found["x"] == found["y"] == pytest.approx(0.97 * 230_000)
        left_mj = ITERATION_US * whole_mw * 1e-6 - B_MJ - XY_MJ
        assert found["a"] == pytest.approx(left_mj / 6.5 * 1e3)


def test_held_kernels_share_by_a_power_of_how_far_their_clock_falls_alone():
    """a falls to 1250 MHz and b to 1000 MHz: by the cube, 1.728 and 3.375 times their energy alone."""
    windows = ("a", 600_000, 1.0, 1250.0, True), ("b", 310_000, 1.0, 1000.0, True), XY
    whole_mj = 1.728 * 6.5 * 600 + 3.375 * 5.1 * 310 + XY_MJ
    found = power_in_passes_mw(ODD, passed(whole_mj / ITERATION_US * 1e6, *windows))
    assert found["a"] == pytest.approx(1.728 * 600_000) and found["b"] == pytest.approx(3.375 * 310_000)
    # the iteration takes less than they do alone, or more than by the eighth power: all by one factor
    for factor in (0.75, 40.0):
        whole_mj = factor * (6.5 * 600 + 5.1 * 310) + XY_MJ
        found = power_in_passes_mw(ODD, passed(whole_mj / ITERATION_US * 1e6, *windows))
        assert found["a"] == pytest.approx(factor * 600_000) and found["b"] == pytest.approx(factor * 310_000)


def test_at_auto_all_kernels_share_what_the_iteration_takes():
    windows = ("a", 600_000, 1.0, 1500.0, False), ("b", 310_000, 1.0, 1500.0, False), XY
    alone_mj = 6.5 * 600 + 5.1 * 310 + XY_MJ
    found = power_in_passes_mw(ODD, passed(1.125 * alone_mj / ITERATION_US * 1e6, *windows, policy="auto"))
    expected = {"a": 600_000, "b": 310_000, "x": 0.97 * 230_000, "y": 0.97 * 230_000}
    assert found == pytest.approx({name: 1.125 * each for name, each in expected.items()})


def test_where_kernels_were_not_metered_held_ones_are_left_out_and_another_visit_may_tell_of_them():
    held = ("a", 690_000, 1.1, 1250.0, True)
    first, second = passed(600_000, held, XY), passed(700_000, B)
    assert set(power_in_passes_mw(ODD, first)) == {"x", "y"}
    assert power_in_passes_mw(ODD, passed(600_000, held, policy="auto")) == {}
    # and passes count as their mean
    assert power_in_passes_mw(ODD, first, [second]) == power_in_passes_mw(ODD, passed(650_000, held, XY, B))


def test_no_kernel_draws_less_than_nothing_where_windows_of_the_others_say_more_than_the_whole():
    windows = ("a", 600_000, 1.0, 1500.0, False), ("b", 310_000, 1.0, 1500.0, False), ("xy", 230_000, 1.1, 1250.0, True)
    found = power_in_passes_mw(ODD, passed(410_000, *windows))
    assert min(found.values()) > 0
    total = sum(LAUNCHES[name] * TIME_US[name] * each for name, each in found.items())
    assert total == pytest.approx(410_000 * ITERATION_US)
