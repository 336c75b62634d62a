"""From options to names: no two studies share a folder, no two settings a setup."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from kernel_dvfs.measurement.latency_file import content
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.plan.study import plan
from kernel_dvfs.registry import outputs
from kernel_dvfs.search import study_file
from kernel_dvfs.workload.workload import name_of_model
from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_paper.chosen import PAPER_AUTO

# a study by clock that has read one record
READ = {"auto.json": hashlib.sha256(b"read").hexdigest()}
SOME = study_file.ByClock("0" * 12, {}, READ, {}, {"target": []}, {"minutes": 7.5})


def made(kind, study) -> set:
    return set(outputs("gpu").of(kind, study))


def folder(config, tmp_path, **changed):
    return Path(plan(config(**changed), str(tmp_path)).folder).relative_to(tmp_path)


def test_what_changes_the_work_or_the_gpu_has_its_own_folder(config, tmp_path):
    changes = [
        {},
        {"batch": 20},
        {"tensor_parallel": 2},
        {"model": "gpt3-125m"},
        {"gpu": "h200_sxm"},
        {"bias_split": "llmc"},
        {"row_parallel_bias": "gathered"},
        {"pass_boundary": "loss_separate"},
        {"token_ids_zipf": 1.1},
        {"gpu_overrides": {"energy_pj": {"tensor_bf16_flop": 1.0}}},
    ]
    few = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": []}
    assert len({folder(config, tmp_path, **few, **change) for change in changes}) == len(changes)


def test_a_models_name_as_workload_is_short_for_that_model(config, tmp_path):
    short = plan(config(workload="gpt3-xl-flash"), str(tmp_path))
    assert short.folder.endswith("gpt3-xl-flash-b40-tp1")
    assert short.setup == plan(config(model="gpt3-xl-flash"), str(tmp_path)).setup
    assert {"forward_attention", "backward_attention"} <= set(short.kernels) and len(short.kernels) == 36
    assert short.passes == ("forward", "backward")
    assert "claims" not in made("table", short), "the paper's claims are about Table 1"


def test_the_default_workload_has_the_short_name(config):
    assert name_of_model(config()) == "gpt3-xl-b40-tp1"
    assert name_of_model(config(bias_split="llmc")) == "gpt3-xl-b40-tp1-bias-split-llmc"


def test_a_choice_setting_leaves_the_setup_as_it_is_and_a_measurement_setting_does_not(config, tmp_path):
    def digest(**changed):
        return plan(config(**changed), str(tmp_path)).setup.path

    base = digest()
    assert digest(limits_percent=[5]) == digest(ties="untied") == digest(validation_repeats=3) == base
    assert digest(grid={"core_mhz": "all", "mem_mhz": "all", "auto": True}) == base
    others = {digest(seed=2), digest(window_s=10), digest(windows=2), digest(warmup_s=1)}
    assert len(others) == 4 and base not in others


def test_as_published_each_launch_chooses_by_itself_where_it_was_measured_by_itself(config, tmp_path):
    def ties(**changed):
        study = plan(config(**changed), str(tmp_path))
        return study.ties("published/"), study.ties()

    assert ties() == ("untied", "tied")
    assert ties(ties="untied") == ("untied", "untied")


def test_the_papers_table_has_copies_of_a_launch_at_different_clocks(config, tmp_path):
    """Why: who pooled copies could not print these marks."""
    marks, groups = {row: count for count, rows in PAPER_AUTO.items() for row in rows}, {}
    for about in read(plan(config(), str(tmp_path)).setup.write()).targets["kernel"].values():
        groups.setdefault(about["replicate_group"], []).append(about["row"])
    del groups[None]
    apart = [rows for rows in groups.values() if len({marks.get(row, 1) for row in rows}) > 1]
    assert len(groups) == 8 and apart == [[10, 14], [19, 29, 44], [21, 30]]


def test_a_setup_holds_the_iteration_in_order(config, tmp_path):
    setup = read(plan(config(), str(tmp_path)).setup.write())
    rows = [about["row"] for about in setup.targets["kernel"].values()]
    assert rows == list(range(1, 47))
    assert list(setup.targets["pass"]) == ["forward", "backward"]


def test_variants_are_every_other_batch_degree_and_tensor_energy(config, tmp_path):
    study = plan(config(), str(tmp_path))
    assert set(study.variants) == {
        *(f"batch-{b}" for b in (20, 10, 5, 2, 1)),
        *(f"tp-{n}" for n in (2, 4, 8, 16)),
        "tensor-energy-0.5",
        "tensor-energy-0.75",
    }
    assert read(study.variants["batch-5"].setup.write()).workload["batch"] == 5
    assert read(study.variants["tensor-energy-0.5"].setup.write()).gpu["spec"]["energy_pj"]["tensor_bf16_flop"] == 0.5


def test_clocks_are_chosen_for_each_limit_the_strict_one_always_among_them(config, tmp_path):
    def asked(*limits):
        return plan(config(limits_percent=[*limits]), str(tmp_path))

    strict, same, more = asked(), asked(0), asked(2.5, 0.000001, 0, 1)
    assert strict.limits_percent == same.limits_percent == [0] and more.limits_percent == [0, 0.000001, 1, 2.5]
    assert len(strict.schedules) == 18 and strict.schedules == same.schedules and len(more.schedules) == 36
    assert set(strict.schedules) < set(more.schedules) == {*asked(1.0, 0.000001, 2.5).schedules}
    ends = [name.removeprefix("kernel-global-waste-slack") for name in more.headline]
    assert ends == ["0", "pass-global-waste-slack0", "0.000001", "1", "2.5"], "one a limit is validated, and of passes"
    assert strict.headline == ["kernel-global-waste-slack0", "pass-global-waste-slack0"]
    assert more.by_clock_options()["limits_percent"] == [0, 0.000001, 1, 2.5]


def test_only_global_waste_by_counts_is_chosen_by_a_walk_and_only_where_one_is_asked_for(config, tmp_path):
    study = plan(config(), str(tmp_path))
    assert study.walk_file("", "global", "waste", "") == [f"{study.folder}/by_clock.json"]
    for other in (("local", "waste", ""), ("single", "waste", ""), ("global", "edp", ""), ("global", "waste", "-raw")):
        assert study.walk_file("", *other) == []
    assert study.walk_file("published/", "global", "waste", "") == [], "as published there is no margin"
    unwalked = plan(config(by_clock={"minutes": 0, "worth_percent": 0.02, "over_percent": 10}), str(tmp_path))
    assert unwalked.walk_file("", "global", "waste", "") == []


def test_a_schedule_is_chosen_again_where_its_own_walk_has_shown_something_else_and_not_where_its_file_is_another(
    config, tmp_path
):
    study = plan(config(), str(tmp_path))
    shown = {"schedules": 9, "passed": 1, "pairs": {"a": (1470, "auto")}, "over_percent": 10, "another_minute": 0.15}
    shown |= {"time_percent": [-1.0, -2.0], "energy_percent": -3.5, "energy_se_percent": 0.5}

    def digest(slack="-slack0.6", scope="global", weights="", token="", **changed):
        walks = {"kernel-slack0.6": shown | changed, "kernel-slack1": shown}
        found = replace(SOME, walks=walks, token=token)
        study_file.write(study.by_clock_file, found)
        return study.walked("", "kernel", scope, "waste", slack, weights)

    assert study.walked("", "kernel", "global", "waste", "-slack0.6", "") == "", "there is none yet"
    known = digest()
    assert known == digest(token="another study") != digest(energy_percent=-3.75)
    assert digest("-slack1", passed=2) == known, "of equal walks"
    assert digest(scope="local") == digest(weights="-raw") == ""


def test_a_study_by_clock_whose_file_is_damaged_or_was_edited_is_asked_for_again(config, tmp_path):
    study = plan(config(), str(tmp_path))
    (Path(study.folder) / "measurements").mkdir(parents=True)
    (Path(study.folder) / "measurements/auto.json").write_text("read")
    study_file.write(study.by_clock_file, replace(SOME, token="abc"))
    whole = Path(study.by_clock_file).read_text()
    assert study.by_clock_token() == "abc"
    tokens = set()
    for text in (whole.replace("abc", "abd"), whole[:40], "", whole.replace('"minutes"', '"hours"')):
        Path(study.by_clock_file).write_text(text)
        tokens.add(study.by_clock_token())
    assert len(tokens) == 4 and not tokens & {"", "abc", "abd"}, "each is another, and none the old one"


def test_a_study_by_clock_is_asked_for_again_where_a_visit_is_gone_or_has_changed(config, tmp_path):
    study = plan(config(), str(tmp_path))
    visit = Path(study.folder) / "measurements/auto.json"
    visit.parent.mkdir(parents=True)
    visit.write_text("read")
    study_file.write(study.by_clock_file, replace(SOME, token="abc"))
    assert study.by_clock_token() == "abc"
    visit.write_text("another")
    again = study.by_clock_token()
    assert again not in ("", "abc") and study.by_clock_token() == again, "until it was made again, the same one"
    visit.unlink()
    assert study.by_clock_token() == again
    # made again, it keeps the token that it was asked for with
    visit.write_text("another")
    checksum = hashlib.sha256(b"another").hexdigest()
    study_file.write(study.by_clock_file, replace(SOME, records={"auto.json": checksum}, token=again))
    assert study.by_clock_token() == again


def test_a_study_by_clock_may_visit_locked_clocks_finer_than_the_grid_at_its_memory_clocks(config, tmp_path):
    grid = {"core_mhz": [1470, 2100], "mem_mhz": [9251], "auto": False}
    study = plan(config(grid=grid), str(tmp_path))
    assert study.visitable[0] == BASELINE and len(study.visitable) > 20 > len(study.pairs)
    assert {pair.mem_mhz for pair in study.visitable[1:]} == {9251} and Pair(2100, 9251) in study.visitable
    assert all(isinstance(pair.core_mhz, int) for pair in study.visitable[1:])
    assert study.by_clock_options()["pairs"].startswith("auto-auto,2100-9251,")


def test_planning_writes_nothing(config, tmp_path):
    study = plan(config(), str(tmp_path))
    assert made("table", study) and made("figure", study) and study.schedule_files() and study.pairs
    assert study.by_clock_token() == ""
    assert not list(tmp_path.iterdir())


def test_a_study_of_a_table_has_no_verdicts_on_the_paper_and_nothing_that_would_have_to_be_measured(config, tmp_path):
    (tmp_path / "mine.csv").write_text("kernel,core_mhz,time_s,energy_j\n")
    study = plan(config(gpu={"kind": "table", "path": str(tmp_path / "mine.csv")}), str(tmp_path))
    assert made("table", study) == {"kernel_clocks", "chosen_clocks", "strategies", "relaxed"}
    assert study.pairs == () and study.headline == [] and not study.is_by_clock


def test_tables_and_figures_of_a_simulated_study_are_those_of_the_paper_and_ours(config, tmp_path):
    study = plan(config(), str(tmp_path))
    ours = {"headline", "tensor_energy"}
    assert {"kernel_clocks", "strategies", "validation", "claims", *ours} <= made("table", study)
    assert not {"baseline", "locking", "passes"} & made("table", study)
    assert len(made("figure", study)) == 6
    without = plan(config(data_parallel_batches=[]), str(tmp_path))
    assert made("figure", study) - made("figure", without) == {"fig7_data_parallelism"}


def test_what_a_change_costs_is_the_configured_where_the_latency_file_does_not_tell_it(config, tmp_path):
    def words(*domains, stall_w=None):
        trial = {"from_mhz": 1, "to_mhz": 2, "verdict": "ok", "call_s": 0.001, "first_effect_s": 0.002}
        trial |= {"settled_s": 0.004, "nvml_s": 0.004, "stall_s": 0.0003}
        gpu = {"name": "G", "uuid": "GPU-0123456789ab", "driver": "580.1"}
        about = {"gpu": gpu, "started_utc": "2026-11-22T10:00:00Z"}
        path = tmp_path / "latency.json"
        path.write_text(json.dumps(content(about, [trial | {"domain": domain} for domain in domains])))
        changes = {"measured": str(path) if domains else None, "latency_s": [0.01], "swept_stall_s": []}
        changes |= {"core_stall_s": 0.001, "mem_stall_s": 0.002, "stall_w": stall_w}
        few = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": []}
        return plan(config(**few, clock_changes=changes), str(tmp_path)).deployable_options()

    measured, played = f"--measured={tmp_path / 'latency.json'}", ["--over=10", "--repeats=10"]
    assert words("core", "mem") == [measured, *played]
    assert words("core") == [measured, *played, "--mem-stall=0.002"]
    assert words("mem") == [measured, *played, "--core-stall=0.001"]
    told = ["--core-stall=0.001", "--mem-stall=0.002", "--stall-w=80"]
    assert words(stall_w=80) == ["--latencies", "0.01", *played, *told]


def test_iteration_schedules_are_for_the_medians_asked_for_else_for_the_board_s_own(config, tmp_path):
    def names(**changes):
        slow = {"switching": {"mem": {"median_s": 0.04}}}
        asked = config(gpu="h200_sxm", gpu_overrides=slow, clock_changes=config()["clock_changes"] | changes)
        return [path.rpartition("/")[2] for path in plan(asked, str(tmp_path)).iteration_files()]

    assert names() == ["iteration-30ms.json"], "as the spec has it of the core"
    assert names(latency_s=[0.002, 0.07]) == ["iteration-2ms.json", "iteration-70ms.json"]
