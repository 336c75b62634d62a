"""The tuned static plan of a trace: its bounds, its search, its file and its replay."""

from dataclasses import replace

import pytest
import yaml
from synthetic_profile import LineEngine, LineMachine

from kernel_dvfs.errors import InputError
from kernel_dvfs_serving.packing import PARTS, Static
from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.system import Settings
from kernel_dvfs_serving.tuned import Tuner, lines, lone_ttft_s, read_static, written

OWN = Settings(servers=3)


@pytest.fixture(scope="module")
def tuner(line, trace):
    return Tuner(Replayer(LineMachine(), line), trace, OWN)


def test_a_lone_prompt_is_read_chunk_by_chunk():
    engine = LineEngine(4, "1980")
    # 512, 512 and 76 tokens: pairs 131328, 512 * 512 + 131328 and 76 * 1024 + 2926
    by_hand = 3 * 0.012 + 1100 * 1e-4 + 1e-10 * (131_328 + 393_472 + 80_750)
    assert lone_ttft_s(engine, 1100, 512) == pytest.approx(by_hand, rel=1e-12)


def test_no_other_plan_within_the_servers_is_cheaper(tuner):
    found = {each["keep_percent"]: each for each in tuner.frontier((97.0, 99.0))}
    plans = [Static(count, tp, clock) for tp, clock in tuner.kinds for count in range(1, OWN.servers + 1)]
    every = [tuner.on(plan) for plan in plans]
    assert found
    for level, best in found.items():
        keeping = [each["j_per_token_in_time"] for each in every if each["kept_percent"] >= level]
        assert best["kept_percent"] >= level and best["j_per_token_in_time"] == min(keeping)


def test_the_bounds_leave_out_only_what_cannot_be_it(tuner):
    for tp, clock in tuner.kinds:
        assert tuner.on(Static(3, tp, clock))["kept_percent"] <= tuner._lone_percent(tp, clock)
        cost = tuner.on(Static(2, tp, clock))["j_per_token_in_time"]
        assert tuner._affordable(tp, clock, cost) >= 2


def test_a_plan_runs_at_its_own_clock_and_degree(tuner):
    slow, fast = tuner.on(Static(3, 4, "800")), tuner.on(Static(3, 4, "1980"))
    assert slow["tbt_p50_s"] > 1.5 * fast["tbt_p50_s"]
    assert slow["servers"] == 3 and slow["replicas"] == 6


def test_a_plan_comes_back_from_its_file(tuner, line, trace, tmp_path):
    found = tuner.frontier((97.0,))
    path = tmp_path / "plan.yaml"
    packer = Tuner(Replayer(LineMachine(), line), trace, OWN, PARTS)
    packed = packer.frontier((97.0,))
    path.write_text(yaml.safe_dump(written(found, packed, tuner.replays, "p.csv", "t.csv", "simulated", "line")))
    (best,) = found
    again = read_static(str(path), packing=True)
    assert again == replace(packer.plan(again.servers, again.tp, again.clock), answer_tokens=again.answer_tokens)
    assert read_static(str(path)) == Static(best["servers"], best["tp"], best["clock"])
    with pytest.raises(InputError, match=r"no plan keeps 99\.9 %; it has 97"):
        read_static(str(path), 99.9)
    path.write_text(path.read_text().replace(f"tp: {best['tp']}", "tp: 3"))
    with pytest.raises(InputError, match="degree 3 are not possible"):
        read_static(str(path))


def test_a_plan_of_one_server_says_that_it_has_no_spare(tuner):
    for count, said in ((1, True), (2, False)):
        found = [{"keep_percent": 97.0} | tuner.on(Static(count, 4, "1980"))]
        assert any(line.startswith("note: one server has no spare") for line in lines(found, [], (97.0,))) == said
        (plan,) = written(found, [], 1, "p.csv", "t.csv", "simulated", "line")["plans"]
        assert ("note" in plan) == said
