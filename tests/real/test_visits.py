"""Visits of a fake board: one clock pair in force, passes of the whole iteration, then windows of power."""

import json
import math

import pytest

from kernel_dvfs.measurement import visit as visits
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.measurement.simulated import works
from kernel_dvfs.measurement.target import MeasurementTarget, iteration
from kernel_dvfs_clocks.clocks import Pair, parse

GELU, GEMM = "forward_gelu", "forward_fc_gemm"
LIGHT = ("embedding_wte_wpe", "embedding_layernorm")
# makes visits of the pairs in argv by the setup argv[1]; their records below v/
VISIT = """
import json, sys
from kernel_dvfs_clocks.clocks import parse
from kernel_dvfs.measurement import campaign, setup, visit
own = setup.read({path!r})
visitor = campaign.open_visitor(own, {path!r})
for place, pair in enumerate({pairs!r}):
    asked = visit.Visit(0, place, parse(pair), 2.5, 0.5, {metered!r})
    visit.write("v/" + visit.path(asked), own, visitor, visitor.visit(asked))
"""


@pytest.fixture
def visited(lab):
    """`visited(*pairs, **how)`: records of visits, in one session; `visited.lab`."""

    def make(*pairs, metered=((GELU,), (GEMM,), LIGHT), environment=None, **knobs):
        made = make.lab = make.lab or lab(**knobs)
        import yaml

        (made.folder / "config.yaml").write_text(yaml.safe_dump(made.config))
        make.path = made.setup()
        done = made.python(VISIT.format(path=make.path, pairs=pairs, metered=metered), **(environment or {}))
        make.said = done.stderr
        own = read(str(made.folder / make.path))
        asked = [visits.Visit(0, place, parse(pair), 2.5, 0.5, metered) for place, pair in enumerate(pairs)]
        paths = [made.folder / "v" / visits.path(each) for each in asked]
        make.setup = own
        return [visits.read_visit(str(path), own, each) for path, each in zip(paths, asked) if path.exists()]

    make.lab = None
    return make


def test_a_visit_has_every_kernel_s_time_and_the_power_of_what_is_metered(visited):
    auto, locked = visited("auto,auto", "1500,2201")
    launches = {}
    for name, count in iteration(visited.setup):
        launches[name] = launches.get(name, 0) + count
    for found in (auto, locked):
        times_us = found["passes"]["time_us"]
        assert times_us.keys() == visited.setup.targets["kernel"].keys() == launches.keys()
        summed_us = math.fsum(count * times_us[name] for name, count in launches.items())
        assert found["passes"]["iteration_us"] == pytest.approx(summed_us, rel=1e-9)
        assert [each["kernels"] for each in found["powers"]] == [[GELU], [GEMM], list(LIGHT)]
        assert found["verdict"] == "ok" and found["device"]["uuid"] == visited.lab.boards.uuid
        assert 4 < found["spent_s"] < 12, "nothing is heated"
    assert locked["reached"] == {"core_mhz": 1500, "mem_mhz": 2201} and locked["request"]["switch_s"] >= 0
    assert (auto["request"]["policy"], locked["request"]["policy"]) == ("auto", "lock")
    # the mix of the iteration is at the power cap, at one clock for all of it, where GELU alone has a higher one
    gelu, gemm, light = auto["powers"]
    assert auto["reached"]["core_mhz"] < gelu["core_mhz"] and gemm["power_mw"] == pytest.approx(700e3, rel=0.02)
    assert gelu["duration_s"] == pytest.approx(0.5, abs=0.06), "short where nothing holds it"
    assert gemm["duration_s"] == pytest.approx(1.0, abs=0.06), "longer at the power cap"
    alone_us = sum(locked["passes"]["time_us"][name] for name in LIGHT)
    assert locked["powers"][2]["time_us"] == pytest.approx(alone_us, rel=0.005), "each in turn"
    assert light["power_mw"] > 0


def test_a_visit_with_no_windows_is_of_times_alone(visited):
    (found,) = visited("900,2201", metered=())
    assert found["powers"] == [] and found["verdict"] == "ok" and found["passes"]["n"] >= 1


def test_at_auto_nothing_is_set(visited):
    (found,) = visited("auto,auto")
    assert found["verdict"] == "ok" and visited.lab.boards.get("sets") == "0"
    done, record = visited.lab.measure("auto,auto")
    assert done.returncode == 0 and record["verdict"] == "ok"
    visited.lab.stop()
    assert visited.lab.boards.get("sets") == "0", "nor when the session ends"


def test_what_is_not_asked_for_as_before_is_measured_again(visited):
    visited("900,2201")
    asked = visits.Visit(0, 0, Pair(900, 2201), 2.5, 0.5, ((GELU,), (GEMM,), LIGHT))
    path = str(visited.lab.folder / "v" / visits.path(asked))
    assert visits.read_visit(path, visited.setup, asked)
    assert visits.read_visit(path, visited.setup, asked._replace(window_s=1.0)) is None
    assert visits.read_visit(path, visited.setup._replace(digest="0" * 12), asked) is None


def test_a_kernel_that_the_setup_lacks_is_one_line(visited):
    assert visited("900,2201", metered=(("no_such",),)) == []
    assert "target 'kernel/no_such': not in workload" in visited.said


@pytest.mark.parametrize("death", ["SIGKILL@2.0", "SIGKILL@4.2"])
def test_clocks_are_restored_whatever_kills_a_visit(visited, death):
    assert visited("1500,2201", environment={"FAKE_DEATH": death}) == [], "no record of half a visit"
    assert visited.lab.restored()
    (found,) = visited("1500,2201")
    assert found["verdict"] == "ok"


# --- records of a sweep ---


def test_records_of_a_pair_share_passes_and_have_windows_of_their_own(lab):
    made = lab()
    records = {name: made.measure("900,2201", target=name)[1] for name in (GELU, GEMM, "pass/forward", "pass/backward")}
    spent = [record["run"]["spent_s"] for record in records.values()]
    assert spent[0]["passes"] > 2.5 and not any(each["passes"] for each in spent[1:]), "once a pair"
    assert all(each["warm_up"] == pytest.approx(0.25, abs=0.05) for each in spent)
    for record in records.values():
        (window,) = record["windows"]
        assert record["verdict"] == "ok"
        energy_mj = record["summary"]["power_mw"] * record["summary"]["time_us"] * 1e-6
        assert record["summary"]["energy_mj"] == pytest.approx(energy_mj, rel=1e-9), "power x time"
        assert window["launches"] * window["time_us"] == pytest.approx(1e6 * window["duration_s"], rel=0.6)
    setup = read(str(made.folder / made.setup()))
    forward = setup.targets["pass"]["forward"]
    at_least_us = sum(count for name, count in forward if name == GELU) * records[GELU]["summary"]["time_us"]
    assert records["pass/forward"]["summary"]["time_us"] > at_least_us
    assert works(setup, MeasurementTarget("kernel", GELU))


def test_a_record_that_is_asked_for_alone_makes_its_passes_anew(lab):
    made = lab()
    _, first = made.measure("900,2201")
    made.measure("1500,2201")
    _, again = made.measure("900,2201")
    assert again["run"]["spent_s"]["passes"] > 2.5, "another pair was in force meanwhile"
    assert again["summary"]["time_us"] == pytest.approx(first["summary"]["time_us"], rel=0.005)
    assert again["summary"]["time_us"] != first["summary"]["time_us"]


def test_a_repeat_of_auto_has_passes_of_its_own(lab):
    made = lab()
    _, first = made.measure("auto,auto")
    words = ("--gpu", made.setup(), "--target", GELU, "--clocks", "auto,auto", "--repeat", "1", "-o", "r1.json")
    assert made.command("measure", *words).returncode == 0
    other = json.loads((made.folder / "r1.json").read_text())
    assert other["run"]["spent_s"]["passes"] > 2.5 and other["summary"]["time_us"] != first["summary"]["time_us"]
    assert made.boards.get("sets") == "0"


def test_at_auto_a_kernel_s_time_is_that_in_the_iteration_and_a_comparison_is_of_it_alone(lab):
    made = lab()
    _, record = made.measure("auto,auto", target=GELU)
    words = ("--gpu", made.setup(), "--clocks", "1500,2201", "--target", GELU, "--last", "0", "-o", "c.json")
    done = made.command("measure", "compare", *words)
    assert done.returncode == 0, done.stderr
    (comparison,) = json.loads((made.folder / "c.json").read_text())["comparisons"]
    alone = comparison["points"][0]
    assert alone["reached"]["core_mhz"] > record["reached"]["core_mhz"] + 100
    assert alone["summary"]["time_us"] < record["summary"]["time_us"]
