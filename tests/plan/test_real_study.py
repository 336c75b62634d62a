"""What a study of a real GPU measures, how often, for how long and what of it is left out, by whose the clocks are."""

import json
from pathlib import Path

import pytest
from listed_board import BOARD, known

from kernel_dvfs.measurement.real.inventory import AGAIN, BY_CLOCK, CAPTURE, OTHER_SIZES
from kernel_dvfs.plan.estimate import comparison_s, study_s
from kernel_dvfs.plan.study import import_options, notices, plan, text_of
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError

# the highest core clock is not listed at the lower memory clock
CLOCKS = {"core_mhz": {"listed": {"3201": [345, 1200, 1500, 1980], "1593": [345, 1200, 1500]}}, "mem_mhz": [1593, 3201]}
GRID = {"core_mhz": [1500, 1980], "mem_mhz": "all", "auto": True}
PAIRS = {(core, mem) for core in (1500, 1980, AUTO) for mem in (1593, 3201, AUTO)} - {(1980, 1593)}
KERNELS, TARGETS = 46, 48
FEW = {"data_parallel_batches": [40, 20], "tensor_parallel_degrees": [1]}


@pytest.fixture
def study(config, tmp_path):
    """`study(clocks="external")`: of a model on the board, as the configuration is changed."""
    gpu = known(tmp_path, clocks=CLOCKS)

    def made(**changed):
        return plan(config(**{"gpu": gpu, "grid": GRID, **FEW} | changed), str(tmp_path))

    return made


def protocol(study) -> dict:
    return json.loads(study.setup.text)["measurement"]


def test_a_board_whose_clocks_are_ours_is_swept_compared_chosen_and_measured_again(study):
    found = study()
    assert (found.title, found.uuid, found.is_real, found.is_simulated) == (BOARD["name"], BOARD["uuid"], True, False)
    assert found.pairs[0] == BASELINE and set(found.pairs) == PAIRS and len(found.pairs) == 8
    assert [pair for pair, _ in found.omitted] == [(1980, 1593)]
    # auto four times, every other pair once; the first and last are auto
    assert [pair for pair, _ in found.points].count(BASELINE) == 4 and len(found.points) == 11
    assert found.points[0] == (BASELINE, 0) and found.points[-1] == (BASELINE, 3)
    # three kernels, each at the highest core clock, memory clock and both, three repeats in sessions of their own
    assert len(found.locked) == 3 and len(found.locking()) == 27
    assert found.contracts == {"core": "1980,auto", "mem": "auto,3201", "both": "1980,3201"}
    assert found.is_by_clock and len(found.headline) == 5 and len(found.schedule_files()) == 10
    assert len(found.validation(found.headline)) == 50 and len(found.carried("batch")) == 5 * KERNELS
    assert found.carried("tp") == [] and found.chosen_again("batch") == [] and notices(found) == []
    assert found.iteration_files() and not found.is_played
    told = protocol(found)
    assert (told["clocks"], told["lock"]) == ("lock", "range")
    assert (told["windows"], told["max_windows"], told["warmup_s"]) == (1, 1, 2) and "through" not in told
    assert protocol(study(through="nvml"))["through"] == "nvml"
    assert [found.session_of(rank) for rank in (0, 2, 3, 10)] == ["sweep-0", "sweep-0", "sweep-1", "sweep-4"]
    assert study(sessions=1).session_of(10) == "" and study(sessions=2).session_of(10) == "sweep-1"


def test_where_a_batch_system_sets_the_clocks_nothing_is_compared_and_each_pair_has_its_own_process(study):
    found = study(clocks="external", slurm_gpu="--gres=gpu:1")
    assert set(found.pairs) == PAIRS and found.headline == [] and not found.is_by_clock
    assert found.locking() == [] and found.carried("batch") == [] and found.sessions == 1
    assert study(clocks="external").sessions == 5, "one process may measure many pairs"
    # chosen from the sweep they are all the same
    assert len(found.schedule_files()) == 10 and found.is_deployable
    (notice,) = notices(found)
    assert notice.startswith("clocks: external: ") and BOARD["slug"] in notice


def test_at_auto_alone_nothing_is_chosen_and_windows_are_doubled(study):
    found = study(clocks="auto-only")
    assert (found.pairs, found.visitable, found.points) == ((BASELINE,), (), ((BASELINE, 0),))
    assert found.headline == found.schedule_files() == found.published_files() == found.locking() == []
    assert found.schedules == [] and found.pass_schedules == [] and found.iteration_files() == []
    told = protocol(found)
    assert (told["windows"], told["max_windows"], told["clocks"]) == (2, 6, "auto-only")
    (notice,) = notices(found)
    assert "Figure 5" in notice and "docs/real-gpus.md" in notice


def test_memory_that_is_not_swept_need_not_be_lockable(study):
    found = study(grid=GRID | {"mem_mhz": []})
    assert {pair.mem_mhz for pair in found.pairs} == {AUTO} and found.contracts == {"core": "1980,auto"}
    assert found.omitted[-1][0] == Pair(AUTO, "all") and len(found.locking()) == 9
    assert all(pair != Pair(AUTO, "all") for pair, _ in study().omitted)
    one = study(grid={"core_mhz": [1500], "mem_mhz": [], "auto": True})
    assert len(one.pairs) == 2 and len(one.visitable) == 4, "auto, and all from 1980 down to 45 % of it"


def test_a_way_that_locks_both_clocks_or_none_leaves_halves_out(study):
    found = study(through="dcgm", lock="exact")
    assert set(found.pairs) == {pair for pair in PAIRS if AUTO not in pair} | {BASELINE}
    assert {pair for pair, _ in found.omitted} == {(1980, 1593)} | {
        pair for pair in PAIRS if AUTO in pair and pair != BASELINE
    }
    with pytest.raises(InputError, match=r"grid\.mem_mhz must not be empty"):
        study(through="dcgm", lock="exact", grid=GRID | {"mem_mhz": []})


def test_a_driver_that_lists_no_clocks_leaves_a_study_at_auto(study, tmp_path):
    known(tmp_path, clocks={"core_mhz": {"listed": {}}, "mem_mhz": []})
    assert study(clocks="auto-only").pairs == (BASELINE,)
    with pytest.raises(InputError, match="the driver lists no clocks"):
        study()


def test_a_captured_step_is_measured_where_the_workflow_runs(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("def make_step(): ...\n")
    found = study(workload="step:train.py:make_step")
    assert found.is_step and found.is_captured_here and not found.is_of_rows and found.has_passes
    assert found.setup is None and found.setups() == [] and found.step_record.endswith("step-train-make-step/step.json")
    assert len(found.headline) == 5 and found.batches == ()
    with pytest.raises(InputError, match="without slurm_gpu"):
        study(workload="step:train.py:make_step", slurm_gpu="--gres=gpu:1")
    for other in ({"clocks": "auto-only"}, {"workload": "step:train.py:make_step"}):
        with pytest.raises(InputError, match="is for a captured step on a real GPU with clocks: auto-only"):
            study(minutes=10, **other)
    # 30 minutes; 10 blocks of 20 s to open, auto twice (2 + 5 s) and 8 pairs (0.5 + 2.5 s), no kernel known
    assert study_s(found, {}, 10) == {CAPTURE: 75.0, BY_CLOCK: 1800, AGAIN: pytest.approx(580)}


def test_what_a_study_takes_is_told_by_its_parts(study):
    found = study()
    parts = study_s(found, protocol(found), 10)
    # a point: 2 s of warm-up, 0.5 to settle, a window of 5.1; four of them a comparison
    assert comparison_s(protocol(found) | {"windows": 3, "max_windows": 9}) == pytest.approx(30.4)
    assert parts == {
        BY_CLOCK: 1800,
        # as of a step, and of 0.6 x 46 kernels four windows of 0.75 s
        AGAIN: pytest.approx(10 * (58 + 0.6 * KERNELS * 4 * 0.75)),
        # 48 targets: at auto 2 s to settle, 2.5 of passes, 1.25 a target; else 0.5, 2.5 and 0.75
        "sweep": pytest.approx(4 * (4.5 + TARGETS * 1.25) + 7 * (3 + TARGETS * 0.75)),
        "locking": pytest.approx(27 * 30.4),
        "measuring again, as published": pytest.approx(KERNELS * 10 * 30.4),
        OTHER_SIZES: pytest.approx(KERNELS * 10 * 30.4),
    }
    alone = study(clocks="auto-only")
    assert study_s(alone, protocol(alone), 10) == {"sweep": pytest.approx(TARGETS * (2.5 + 2 * 5.1))}
    external = study(clocks="external")
    assert study_s(external, protocol(external), 10) == {"sweep": parts["sweep"]}


# --- of other kinds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reoptimise", "sizes"), [(True, 3), (False, 0)])
def test_clocks_are_chosen_again_at_other_sizes_where_that_is_asked_for_and_for_other_energies_always(
    config, tmp_path, reoptimise, sizes
):
    found = plan(config(**FEW, reoptimise=reoptimise, tensor_energy_pj=[0.5]), str(tmp_path))
    assert len(found.chosen_again("batch")) == sizes and len(found.chosen_again("tensor-energy")) == 4
    assert found.variants_of("batch") == ["batch-20"] and found.variants_of("tp") == []
    assert found.setup_digests("batch") == {20: found.variants["batch-20"].setup.digest}
    assert len(found.setups()) == 3 and {text_of(each.path, found.setups()) for each in found.setups()} == {
        each.text for each in found.setups()
    }
    with pytest.raises(ValueError, match="of another configuration"):
        text_of("other.json", found.setups())
    assert len(found.carried("batch")) == KERNELS, "a simulation has one session"


def test_schedules_name_weights_that_are_not_the_kind_s_own(config, tmp_path):
    (tmp_path / "mine.csv").write_text("kernel,core_mhz,time_s,energy_j\n")
    table = {"kind": "table", "path": str(tmp_path / "mine.csv")}

    def ends(**changed):
        return {
            name.partition("slack0")[2] for name in plan(config(**changed), str(tmp_path)).schedules if "k0" in name
        }

    limits = {"limits_percent": [0]}
    assert ends(**limits) == ends(**limits, weights="counts") == {""} and ends(**limits, weights="raw") == {"-raw"}
    assert ends(**limits, gpu=table) == ends(**limits, gpu=table, weights="raw") == {""}
    assert ends(**limits, gpu=table, weights="counts") == {"-counts"}
    always = plan(config(**limits, weights="raw"), str(tmp_path))
    assert len(always.published_files()) == 18 + 3, "the strict ones that are measured again keep their weights"


def test_a_table_s_study_says_that_it_is_chosen_from_as_it_is(config, tmp_path):
    (tmp_path / "mine.csv").write_text("kernel,core_mhz,time_s,energy_j\n")
    gpu = {"kind": "table", "path": str(tmp_path / "mine.csv")}
    found = plan(config(gpu=gpu), str(tmp_path))
    assert [notice.partition(":")[0] for notice in notices(found)] == ["by_clock"]
    off = {"minutes": 0, "worth_percent": 0, "over_percent": 10}
    assert notices(plan(config(gpu=gpu, by_clock=off), str(tmp_path))) == []
    assert (found.sessions, found.is_deployable, found.is_of_rows, found.clocks) == (1, False, False, "lock")
    assert found.iteration_files() == [] and found.setups() == []
    assert (found.title, plan(config(gpu=gpu | {"name": "My GPU"}), str(tmp_path)).title) == (
        "table mine",
        "table My GPU",
    )
    told = {
        "path": "x.csv",
        "name": "My GPU",
        "reference": [1980, "auto"],
        "settings": ["a", "b"],
        "only": {"n": "1 2"},
    }
    assert import_options(told) == "--name 'My GPU' --reference 1980,auto --settings a b --only 'n=1 2'"
    assert import_options({"path": "x.csv", "reference": 0}) == "--reference 0" and import_options({"path": "x"}) == ""
    with pytest.raises(InputError, match="leave workload out"):
        plan(config(gpu=gpu, workload="gpt3-xl"), str(tmp_path))


def test_what_other_gpus_hold_of_a_workload_is_shown_beside_it_as_far_as_it_is_there(config, tmp_path):
    found = plan(config(), str(tmp_path))
    for slug, names in {
        "sim-a": ("profile.parquet", "schedules/s.json", "tables/headline.json"),
        "sim-b": ("profile.parquet",),
        Path(found.folder).parent.name: ("profile.parquet", "schedules/s.json"),
    }.items():
        for name in names:
            path = tmp_path / slug / found.workload / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    wanted = [
        f"{tmp_path}/sim-a/{found.workload}/{name}"
        for name in ("profile.parquet", "schedules/s.json", "tables/headline.json")
    ]
    assert found.elsewhere(found.workload, "s", "headline") == found.elsewhere("*", "s", "headline") == wanted
    assert found.elsewhere("another", "s", "headline") == []


@pytest.mark.parametrize(("latencies_s", "is_told"), [([0.01, 0.02], True), ([0.01, 0.01 + 1e-16], False)])
def test_latencies_that_a_file_s_name_does_not_tell_apart_are_refused(config, tmp_path, latencies_s, is_told):
    changes = config()["clock_changes"] | {"latency_s": latencies_s}
    if is_told:
        assert len(plan(config(clock_changes=changes), str(tmp_path)).iteration_files()) == 2
        return
    with pytest.raises(InputError, match="differ only after the twelfth digit"):
        plan(config(clock_changes=changes), str(tmp_path))
