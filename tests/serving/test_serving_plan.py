"""The plan of a serving study: which files it makes, from a configuration alone and without heavy libraries."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_dvfs.outputs import asked_by
from kernel_dvfs.registry import outputs
from kernel_dvfs_serving.study_plan import line_of_serving, plan_serving
from kernel_dvfs_serving.system import DEFAULTS

INSTANCE = "results/serving/sim-h100-sxm-llama2-70b"
REPLAY = f"{INSTANCE}/synthetic-hour-s12-p4"


@pytest.fixture
def planned(config):
    """`planned(week=...)` is the plan of the shipped configuration with keys of `serving` changed."""
    return lambda **changed: plan_serving(config(serving=config()["serving"] | changed))


def made(kind, plan) -> set:
    return set(outputs("serving").of(kind, plan))


def test_the_shipped_configuration_says_what_is_usual(config):
    asked = config()["serving"]
    assert asked == {key: DEFAULTS[key] for key in asked}
    # the seed is the whole configuration's; the others cannot be configured
    assert DEFAULTS.keys() - asked.keys() == {"seed", "sample_s", "bin_s"}
    assert DEFAULTS["seed"] == config()["seed"]


def test_a_table_lies_in_the_folder_of_the_experiments_that_it_reads(planned):
    plan = planned()
    asked = asked_by(outputs("serving"), plan)
    in_instance, in_replay = asked[f"{INSTANCE}/tables/table1_mix"], asked[f"{REPLAY}/tables/savings"]
    assert in_instance.files == [f"{INSTANCE}/tables/table1_mix.{form}" for form in ("csv", "md", "tex")]
    assert in_replay.files == [f"{REPLAY}/tables/savings.{form}" for form in ("csv", "md", "tex")]
    assert asked[f"{INSTANCE}/figures/table1"].files == [f"{INSTANCE}/figures/table1.{form}" for form in ("pdf", "png")]
    experiments = [f"{REPLAY}/experiments/{name}.json" for name in ("systems", "loads")]
    assert asked[f"{REPLAY}/tables/paper"].inputs == [*experiments, f"{REPLAY}/study.json"]
    assert asked[f"{INSTANCE}/tables/anchors"].inputs == [f"{INSTANCE}/experiments/anchors.json"]


def test_what_is_not_asked_for_has_no_table(planned, tmp_path):
    whole = planned(week={"service": "coding", "scale": 0.1, "days": 1})
    assert "week" in made("table", whole) and "week" in made("figure", whole)
    shipped = planned()
    assert made("table", whole) - made("table", shipped) == {"week"}
    # the reported figures by load need loads
    assert made("table", shipped) - made("table", planned(loads_tps=[])) == {"loads", "paper"}
    # with a given profile there is no simulated instance to compare with Table I
    (tmp_path / "mine.csv").write_text("")
    given = planned(profile=str(tmp_path / "mine.csv"))
    assert made("table", shipped) - made("table", given) == {"table1", "table1_agreement", "table1_mix"}
    assert "table1" not in made("figure", given) and given.folder.startswith("results/serving/table-mine-")


def test_whatever_changes_a_replay_is_in_its_folders_name(planned):
    """So that a study asked for again with another promise or slot does not overwrite the first."""
    changes = [{}, {"slo_scale": 2}, {"load_slot_s": 60}, {"priced_at": "top"}, {"react": False}, {"trace_times": 1}]
    changes += [{"promise_percent": 95}, {"margin": 1.5}, {"servers": 13}, {"pools": 1}, {"emergencies": False}]
    changes += [{"loads_tps": [100]}, {"loads_span_s": 60}, {"usd_per_kwh": 1}, {"co2_g_per_kwh": 1}]
    changes += [{"usd_per_server_hour": 1}, {"week": {"service": "coding", "scale": 0.1, "days": 1}}]
    assert len({planned(**changed).replay for changed in changes}) == len(changes)


def test_whatever_changes_an_instance_is_in_its_folders_name(planned, config):
    """Its profile too: another draw or another engine never stands where the first was read."""
    changes: list = [{}, {"requests": 100}, {"max_batch": 64}, {"chunk_tokens": 1024}, {"degrees": [4, 8]}]
    changes += [{"core_mhz": [1980]}, {"kernel_level": False}, {"host_s": 0.018}, {"model": "llama3-70b"}]
    profiles = {planned(**changed).profile for changed in changes} | {plan_serving(config(seed=2)).profile}
    assert len(profiles) == len(changes) + 1
    assert planned().folder == INSTANCE and planned().replay == REPLAY


def test_files_of_one_name_in_two_places_have_folders_of_their_own(planned, tmp_path):
    paths = [tmp_path / place / "mine.csv" for place in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_text("")
    for key in ("trace", "profile"):
        plans = [planned(**{key: str(path)}) for path in paths]
        assert plans[0].folder != plans[1].folder and plans[0].profile != plans[1].profile
    # with a given profile, the replay's folder says what is run on it, and which trace
    given = {"profile": str(paths[0])}
    changes: list = [{}, {"host_s": 0.018}, {"model": "llama3-70b"}, {"kernel_level": False}]
    changes += [{"trace": str(path)} for path in paths]
    assert len({planned(**given, **changed).replay for changed in changes}) == len(changes)


def test_planning_writes_nothing_and_imports_nothing_heavy(root, tmp_path):
    """Read whenever the workflow is parsed, so what only makes tables and figures is imported when they are made."""
    code = (
        "import sys; from kernel_dvfs.plan.config import load; before = set(sys.modules);"
        "from kernel_dvfs_serving.study_plan import plan_serving;"
        f"plan = plan_serving(load({str(root / 'config.yaml')!r})); from kernel_dvfs.registry import outputs;"
        "assert outputs('serving').made_by(plan);"
        "heavy = {'numpy', 'pandas', 'matplotlib', 'plotnine', 'scipy', 'simpy', 'ortools'};"
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    environment = {"PYTHONPATH": str(root / "workflow"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert not list(Path(tmp_path).iterdir())


def ended(folder, *rows) -> str:
    """The line of a study with these systems."""
    (folder / "tables").mkdir(exist_ok=True)
    head = "system,j_per_token_in_time,promise_kept,plan,kept_percent,gpu\n"
    (folder / "tables/savings.csv").write_text(head + "".join(f"{row},simulated A\n" for row in rows))
    return line_of_serving(str(folder))


def test_a_run_ends_with_who_wins_how_sure_and_what_to_start(tmp_path):
    assert line_of_serving(str(tmp_path)) == f"serving: tables and figures are in {tmp_path}"
    static = 'tuned static plan,0.5217,True,"2 servers of 8 GPUs, TP4 at 1200 MHz",99.3'
    packing = 'packing,0.3012,True,"1 server of 8 GPUs, TP8 at 1000 MHz, boosted to 1600",99.879'
    # neither hindsight, nor free changes of clocks, nor a broken promise can win
    others = [f'"{name}",0.1,True,,100' for name in ("DynamoLLM, hindsight", "DynamoLLM, kernel clocks")]
    others.append("DynamoLLM,0.1,False,,98.9")
    assert ended(tmp_path, static, packing, *others) == (
        "serving: packing wins with 0.301 J a token served in time (99.87 % of the promises kept), 0.577 of the tuned "
        "static plan's 0.522. Start 1 server of 8 GPUs, TP8 at 1000 MHz, boosted to 1600; one server has no spare: "
        "while it is lost, the promise is broken. How sure: simulated A; tuned on this trace. "
        f"Open {tmp_path}/figures/savings.png"
    )
    assert "DynamoLLM wins with 0.311" in (line := ended(tmp_path, static, "DynamoLLM,0.311,True,,99.1"))
    assert "Start" not in line and "0.596 of the tuned static plan's" in line
    assert "no system keeps the promise" in ended(tmp_path, static.replace("True", "False"))
