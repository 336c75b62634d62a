"""Traces that nobody planned for: a plan and its replay answer rightly, or in one line."""

import json

import numpy as np
import pytest
import yaml
from synthetic_profile import LineMachine

from kernel_dvfs.cli.main import main
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.commands import plan, replay
from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.trace import dealt, make_trace, of_loads, write_trace


def _trace(arrival_s, prompt, answer):
    count = len(arrival_s)
    arrays = (np.broadcast_to(each, count).astype(int) for each in (prompt, answer))
    return make_trace(np.asarray(arrival_s, float), *arrays, "odd")


RNG = np.random.default_rng(3)
ODD = {
    "one request": _trace([0.0], 211, 30),
    "two at one moment": _trace([0.0, 0.0], [211, 1500], [1, 1]),
    "answers of one token": _trace(np.arange(50) * 0.7, 300, 1),
    "empty hours between": _trace([0, 1, 2, 7200, 7201, 20_000], 300, 80),
    "one huge burst": _trace(np.concatenate([np.arange(30) * 2.0, np.full(300, 60.0)]), 400, 40),
    "all long prompts": _trace(np.arange(60) * 1.1, 8000, 20),
    "a prompt larger than every cache": _trace(np.arange(100) * 1.0, [300] * 99 + [2_000_000], 10),
    "very high load": _trace(np.sort(RNG.uniform(0, 2, 750)), 900, 90),
}
# which keep nothing on three servers, whatever the plan
NONE = {"very high load", "one huge burst"}


@pytest.fixture(scope="module")
def desk(line, tmp_path_factory):
    """A folder with the made-up machine's profile and the traces."""
    folder = tmp_path_factory.mktemp("odd")
    for name, trace in ODD.items():
        write_trace(folder / f"{name}.csv", trace)
    (folder / "profile.csv").write_text("made up")
    return folder


@pytest.fixture
def made_up(monkeypatch, line):
    """Commands replay on the made-up machine."""
    for command in (plan, replay):
        monkeypatch.setattr(command, "read_profile", lambda path: line)
        monkeypatch.setattr(
            command, "replayer_of", lambda options, profile, own, **columns: Replayer(LineMachine(), line, **columns)
        )


@pytest.mark.parametrize("name", ODD)
def test_a_plan_and_its_replay_answer(desk, made_up, tmp_path, capsys, name):
    trace, plan, out = (str(path) for path in (desk / f"{name}.csv", tmp_path / "plan.yaml", tmp_path / "out.json"))
    words = ["--profile", str(desk / "profile.csv")]
    code = main(["serving", "plan", trace, *words, "--keep", "97", "--servers", "3", "-o", plan])
    said = capsys.readouterr()
    if code:
        assert (
            code == 2
            and said.err.count("\n") == 1
            and "keeps 97 % of the promises with all margins; give more servers" in said.err
        )
    assert (code == 2) == (name in NONE), said
    if code:
        return
    too_long = "1 of 100 requests (1 %) have more tokens than the largest KV cache of an instance (900000), the longest"
    assert (too_long in said.err) == ("larger" in name)
    best = yaml.safe_load((tmp_path / "plan.yaml").read_text())["plans"][0]
    assert min(best["kept_percent"].values()) >= 97 and best["j_per_token_in_time"] > 0
    for more in ([], ["--router", "least requests"], ["--route-s", "0.01", "--fails-s", "30", "--set", "start_s=20"]):
        assert main(["serving", "replay", trace, *words, "--plan", plan, *more, "-o", out]) == 0
        found = json.loads((tmp_path / "out.json").read_text())
        assert found["in_time"] + found["late"] + found["rejected"] == found["requests"] == len(ODD[name].arrival_s)
        assert "nan" not in (tmp_path / "out.json").read_text().lower()
    # without trouble a plan does on its trace what it said
    assert main(["serving", "replay", trace, *words, "--plan", plan, "-o", out]) == 0
    found = json.loads((tmp_path / "out.json").read_text())["tried"]
    assert found == {key: best[key] for key in found}


def test_a_prompt_that_no_instance_holds_is_left_out_or_refused_by_choice(desk, made_up, tmp_path, capsys):
    trace, plan = str(desk / "a prompt larger than every cache.csv"), str(tmp_path / "plan.yaml")
    words = ["serving", "plan", trace, "--profile", str(desk / "profile.csv"), "--keep", "97", "-o", plan, "--too-long"]
    assert main([*words, "refuse"]) == 2
    assert "1 of 100 requests (1 %) have more tokens than the largest KV cache" in capsys.readouterr().err
    assert main([*words, "leave-out"]) == 0
    said = capsys.readouterr()
    assert "without 1 long requests" in said.out and "; left out\n" in said.err
    best = yaml.safe_load((tmp_path / "plan.yaml").read_text())["plans"][0]
    assert set(best["kept_percent"].values()) == {100}


def test_cells_share_a_trace_among_them():
    trace = ODD["very high load"]
    parts = [dealt(trace, 7)]
    assert len(parts[0].arrival_s) == pytest.approx(len(trace.arrival_s) / 7, abs=1)
    assert parts[0].span_s == trace.span_s and dealt(trace, 1) is trace


def test_given_loads_are_what_arrives():
    trace = of_loads({"SS": 700.0, "LL": 2500.0}, 1800.0, seed=5)
    tokens = (trace.input_tokens + trace.output_tokens).astype(float)
    long = trace.input_tokens >= 1024
    assert tokens[~long].sum() / 1800 == pytest.approx(700, rel=0.06)
    assert tokens[long].sum() / 1800 == pytest.approx(2500, rel=0.06)
    assert (np.diff(trace.arrival_s) >= 0).all() and trace.subject.startswith("synthetic")
    with pytest.raises(InputError, match="no request in 1 s at these loads"):
        of_loads({"LL": 0.001}, 1.0, seed=1)


@pytest.mark.slow
def test_a_plan_of_loads_by_command(desk, made_up, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(plan, "LOADS_S", 120.0)
    words = ["serving", "plan", "--profile", str(desk / "profile.csv"), "-o", str(tmp_path / "plan.yaml")]
    loads = ["--load", "SS=300", "--load", "MM=400"]
    assert main([*words, *loads, "--keep", "95", "--gaps", "p99", "--rules", str(tmp_path / "rules.yaml")]) == 0
    planned = yaml.safe_load((tmp_path / "plan.yaml").read_text())
    assert planned["trace"] == "synthetic load, tokens/s: SS 300, MM 400" and planned["gaps"] == "p99"
    best = planned["plans"][0]
    assert f"--max-num-batched-tokens {best['step_tokens']} " in best["start"]["replica"]
    rules = yaml.safe_load((tmp_path / "rules.yaml").read_text())["groups"][0]["rules"]
    assert any(rule["expr"] == f"vector({best['servers']})" for rule in rules)
    said = capsys.readouterr().out
    assert best["start"]["replica"] in said and "the cheapest plans that keep it on first half alone:" in said
    for wrong, line in (
        ([*loads, str(desk / "one request.csv")], "give either a trace or, class by class, --load"),
        ([], "give either a trace or, class by class, --load"),
        (["--load", "XX=1"], "expected one of SS"),
        (["--load", "SM=fast"], "--load SM=fast: expected a number of tokens/s"),
        ([*loads, "--servers", "2", "--spare", "2"], "spare = 2 is not possible; allowed: fewer than the servers (2)"),
        ([*loads, "--keep", "101"], "--keep 101: expected a number of percent from 1 to 100"),
    ):
        assert main([*words, *wrong]) == 2
        error = capsys.readouterr().err
        assert line in error and error.count("\n") == 1, error


def test_a_fleet_of_cells_is_planned_by_one(desk, made_up, tmp_path, capsys):
    words = ["--profile", str(desk / "profile.csv")]
    trace, plan, out = str(desk / "all long prompts.csv"), str(tmp_path / "plan.yaml"), str(tmp_path / "out.json")
    assert main(["serving", "plan", trace, *words, "--keep", "95", "--cells", "3", "-o", plan]) == 0
    assert "one cell of 3" in capsys.readouterr().out
    assert main(["serving", "replay", trace, *words, "--plan", plan, "-o", out]) == 0
    assert json.loads((tmp_path / "out.json").read_text())["requests"] == 20
