"""What is derived stands under seal: a changed byte of it is refused, or changes no number."""

import json
import os
import random
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

from kernel_dvfs.choice import schedule_file
from kernel_dvfs.cli.main import main
from kernel_dvfs.layout import STRICT
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement import setup as setups
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.profile.table import import_to_profile
from kernel_dvfs.report import sealed
from kernel_dvfs.report.page.provenance import of_chain, of_file
from kernel_dvfs.report.results import Results
from kernel_dvfs.report.write import write_table
from kernel_dvfs.search import study_file
from kernel_dvfs.table_file import read_rows
from kernel_dvfs_clocks.clocks import Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import digest, write_sealed
from kernel_dvfs_clocks.shape import read
from kernel_dvfs_deploy.sequence.schedule import read_iteration
from kernel_dvfs_pipeline.solver import Solver
from kernel_dvfs_pipeline.steps import make_study, solve_certificate, solve_plans, solve_switching
from kernel_dvfs_pipeline.study import FILES, KEYS, PipelineStudy, read_plan
from kernel_dvfs_serving import study as serving_study
from kernel_dvfs_serving.deployment import read_static, sealed_yaml
from kernel_dvfs_serving.profile import LATENCIES
from kernel_dvfs_serving.profile import read_profile as read_serving_profile
from kernel_dvfs_serving.profile import write_profile as write_serving_profile
from kernel_dvfs_serving.study import ServingStudy
from kernel_dvfs_serving.system import DEFAULTS, SETTINGS


@pytest.fixture(scope="module")
def derived(tmp_path_factory, setup_of, study_options):
    """{kind: (path, what reads it)} of files as commands write them: one of every kind in results/ that is read."""
    at = tmp_path_factory.mktemp("derived")
    found = chosen(at) | measured(at, setup_of()) | of_pipeline(at, study_options) | of_serving(at)
    assert set(found) == set(KINDS)
    return found


def chosen(at):
    rows = [f"{kernel},{core},5001,{9 / core!r},{core / 90!r}" for kernel in "ab" for core in (900, 1200, 1500)]
    (at / "t.csv").write_text("\n".join(["kernel,core_mhz,mem_mhz,time_s,energy_j", *rows]) + "\n")
    profile, order = at / "p.parquet", at / "order.json"
    import_to_profile(at / "t.csv", profile, reference="highest")
    order.write_text(json.dumps(["a", "b", "a"]))
    choose = ["choose", str(profile), "-o"]
    assert main([*choose, str(at / "schedule.json"), "--slack", "20"]) == 0
    assert main([*choose, str(at / "frontier.json"), "--frontier"]) == 0
    sequence = ["sequence", str(profile), "--order", str(order), "--switch-latency", "0.001"]
    assert main([*sequence, "-o", str(at / "iteration.json")]) == 0
    stages = "stage,instruction,core_mhz,time_s,energy_j\n"
    works = [(stage, what, mhz) for stage in (0, 1) for what in ("forward", "backward") for mhz in (900, 1350)]
    stages += "".join(f"{stage},{what},{mhz},{90 / mhz!r},{mhz / 90!r}\n" for stage, what, mhz in works)
    (at / "stages.csv").write_text(stages)
    words = ["pipeline", "plan", str(at / "stages.csv"), "--no-slowdown", "--blocking-w", "70", "--microbatches", "4"]
    assert main([*words, "-o", str(at / "plan.json")]) == 0
    by_clock = study_file.ByClock("0" * 12, {"ties": "tied"}, {"v/0.json": "0" * 64}, {}, {"time_s": [0.5]}, {"m": 7.5})
    study_file.write(str(at / "by_clock.json"), by_clock)
    static = {"schema": "kernel-dvfs/serving-static/3", "cells": 1, "slo_scale": 1.0, "gaps": "mean"}
    static["plans"] = [
        {"keep_percent": 99.0, "kept_on": "both halves, slower steps", "servers": 2, "tp": 4, "clock": "1400"}
    ]
    static["plans"][0] |= {"rest": "345", "router": "least requests", "step_tokens": 2048, "answer_tokens": 200.5}
    static["plans"][0]["j_per_token"] = 0.4375
    (at / "static.yaml").write_text(sealed_yaml(static))
    frame = pd.DataFrame({"schedule": ["a", "b"], "energy_change_percent": [-7.31, -5.08]})
    write_table(frame, at, "headline", "Changes", "simulated")
    return {
        "schedule": (at / "schedule.json", schedule_file.read_schedule),
        "frontier": (at / "frontier.json", lambda path: read(path, schedule_file.FrontierFile, "", "", is_sealed=True)),
        "iteration": (at / "iteration.json", read_iteration),
        "plan of a pipeline": (at / "plan.json", read_plan),
        "plan of serving": (at / "static.yaml", lambda path: read_static(str(path))),
        "table": (at / "tables/headline.json", read_rows),
        "profile": (profile, lambda path: (lambda own: (own.metadata, own.table.to_pylist()))(read_profile(path))),
        "study by clock": (at / "by_clock.json", lambda path: study_file.read(str(path))),
    }


def measured(at, setup):
    target, pair = MeasurementTarget("kernel", "forward_fc_gemm"), Pair(1890, 9251)
    bench = Bench(setup, target)
    record.write_point(str(at / "r0.json"), setup, bench, target, "sweep", 0, bench.point(pair))
    record.write_comparison(str(at / "c.json"), setup, bench.device, "s.json", [bench.compare(pair, 0)])
    stored = setups.store(str(at), setup.gpu, setup.workload, setup.targets, setup.measurement)
    return {
        "record": (at / "r0.json", lambda path: record.read_any(str(path))),
        "comparison": (at / "c.json", lambda path: record.read_comparison(str(path))),
        "setup": (Path(stored), lambda path: setups.read(str(path))),
    }


def of_pipeline(at, study_options):
    asked = study_options | {"stages": 2, "microbatches": [4], "name": "two"}
    folder = at / "pipeline"
    make_study(at / "stages.csv", folder, asked)
    solver = Solver(PipelineStudy(folder))
    for part in (solve_plans, solve_switching, solve_certificate):
        part(solver, 4)
    kinds = {name: kind for kind, name in FILES.items() if (folder / "mb4" / name).is_file()}
    return {
        "study of a pipeline": (folder / "study.json", lambda path: PipelineStudy(path.parent).options),
        "stages": (folder / "stages.csv", lambda path: plainly(PipelineStudy(path.parent).profile.settings)),
        "plan of a study": (folder / "mb4/plans/one-clock.json", lambda path: PipelineStudy(folder).plan(4, path.stem)),
        **{
            f"pipeline's {name}": (folder / "mb4" / name, lambda path: PipelineStudy(folder).read(4, kinds[path.name]))
            for name in kinds
        },
    }


def plainly(settings):
    """All digits of arrays."""
    return {
        key: [[*map(float, own.core_mhz)], own.time_s.tolist(), own.energy_j.tolist()] for key, own in settings.items()
    }


def curves(read):
    """All digits of arrays."""
    names = ("tps", "power_w", *LATENCIES)
    return {key: [getattr(own, name).tolist() for name in names] for key, own in read.curves.items()}


def of_serving(at):
    folder, profile = at / "serving", at / "serving/profile.csv"
    row = {"model": "llama2-70b", "gpu": "h100_sxm", "tp": 4, "source": "measured"}
    row |= {"ttft_p50_s": 0.1, "ttft_p99_s": 0.2, "tbt_p50_s": 0.02, "tbt_p99_s": 0.03}
    points = [(name, mhz, tps) for name in ("SS", "LL") for mhz in (1200, 1980) for tps in (0, 700)]
    rows = [row | {"class": name, "core_mhz": mhz, "tps": tps, "power_w": 500.5 + tps} for name, mhz, tps in points]
    write_serving_profile(profile, rows)
    asked = {"gpu": "h100_sxm", "model": "llama2-70b", "profile": str(profile), "trace": None, "trace_sha256": None}
    asked |= {"trace_times": 1, "usd_per_server_hour": 9.5, "usd_per_kwh": 0.1, "co2_g_per_kwh": 300.5, "host_s": 0.001}
    asked |= {"slo_scale": 1.0, "settings": {name: DEFAULTS[name] for name in SETTINGS}}
    serving_study.make_study(folder, asked)
    study = ServingStudy(folder)
    runs = [
        {"system": "tuned static plan", "j_per_token_in_time": 0.4375, "kept_percent": 99.25, "power_w": [70.5, 81.0]}
    ]
    serving_study.write_experiment(study.path("systems"), runs, study.made_of)
    serving_study.write_experiment(at / "instance/experiments/anchors.json", {"anchors": runs})
    return {
        "serving study": (folder / "study.json", lambda path: [ServingStudy(path.parent)[key] for key in asked]),
        "serving profile": (profile, lambda path: curves(read_serving_profile(path))),
        "experiment": (study.path("systems"), lambda path: ServingStudy(folder).experiment(path.stem)),
        "anchors": (
            at / "instance/experiments/anchors.json",
            lambda path: ServingStudy(path.parents[1]).experiment("anchors"),
        ),
    }


def unnoticed(path, read_it, places):
    """The bits whose flip changes what is read without a word."""
    whole = path.read_bytes()
    wanted, missed = repr(read_it(path)), []
    # a flip within the seal changes nothing else: its name, and then nothing is checked, or its digits
    own = re.search(rb'"?sha256"?: "?[0-9a-f]{64}"?\s*}?\s*\Z', whole)
    try:
        for place in places:
            flipped = bytearray(whole)
            flipped[place // 8] ^= 1 << place % 8
            path.write_bytes(flipped)
            try:
                found = repr(read_it(path))
            except InputError:
                continue
            if found != wanted and not (own and own.start() <= place // 8):
                missed.append((place, bytes(flipped[max(0, place // 8 - 20) : place // 8 + 20])))
    finally:
        path.write_bytes(whole)
    return missed


KINDS = (
    *("schedule", "frontier", "iteration", "plan of a pipeline", "plan of serving", "table", "profile"),
    *("study by clock", "record", "comparison", "setup", "study of a pipeline", "stages", "plan of a study"),
    *(f"pipeline's {name}" for name in FILES.values() if name != "levels.csv"),
    *("serving study", "serving profile", "experiment", "anchors"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_no_flipped_bit_changes_a_number_unnoticed(derived, kind, fuzz_seed):
    path, read_it = derived[kind]
    bits, rng = 8 * path.stat().st_size, random.Random(f"{fuzz_seed} {kind}")
    assert not unnoticed(path, read_it, rng.sample(range(bits), min(bits, 25)))


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_of_five_thousand_flipped_bits_none_changes_a_number_unnoticed(derived, kind, fuzz_seed):
    path, read_it = derived[kind]
    bits, rng = 8 * path.stat().st_size, random.Random(f"night {fuzz_seed} {kind}")
    assert not unnoticed(path, read_it, rng.choices(range(bits), k=5000 // len(KINDS) + 1))


def test_an_edited_saving_is_refused_by_whoever_reads_it(derived, capsys):
    """As anybody's editor writes it: the number is another, the file is as good as before."""
    path, _ = derived["schedule"]
    content = path.read_text()
    edited = json.loads(content)
    edited["energy_change_percent"] = -44.0
    path.write_text(json.dumps(edited, indent=1))
    try:
        with pytest.raises(
            InputError, match=r"schedule\.json: was changed since it was written: its sha256 is another's"
        ):
            schedule_file.read_schedule(path)
    finally:
        path.write_text(content)
    del edited["sha256"]
    other = path.with_name("mine.json")
    other.write_text(json.dumps(edited))  # what somebody wrote by hand has no seal, and is theirs
    assert schedule_file.read_schedule(other)["energy_change_percent"] == -44.0


def test_a_result_says_what_it_was_made_of(derived):
    at = derived["schedule"][0].parent
    for name, what, made_of in (
        ("schedule.json", "profile", "p.parquet"),
        ("frontier.json", "profile", "p.parquet"),
        ("plan.json", "stages", "stages.csv"),
    ):
        assert json.loads((at / name).read_text())["made_of"] == {what: digest(at / made_of)}


def test_a_page_prints_what_a_choice_was_made_of(derived, tmp_path):
    at = derived["schedule"][0].parent
    (tmp_path / "schedules").mkdir()
    shutil.copy(at / "p.parquet", tmp_path / "profile.parquet")
    strict = tmp_path / f"schedules/{STRICT}.json"
    assert main(["choose", str(tmp_path / "profile.parquet"), "-o", str(strict)]) == 0
    own = json.loads(strict.read_text())["sha256"]
    wanted = [(f"schedules/{STRICT}.json", own[:16]), ("its profile.parquet", digest(at / "p.parquet")[:16])]
    assert of_chain(Results(tmp_path))[:2] == wanted
    import_to_profile(at / "t.csv", tmp_path / "profile.parquet", reference="900,5001")
    assert of_chain(Results(tmp_path))[1][1].endswith(", another than it was made of")


def test_an_edited_table_is_refused(derived):
    path, _ = derived["table"]
    whole = path.read_text()
    assert read_rows(path)[0] == {"schedule": "a", "energy_change_percent": -7.31, "gpu": "simulated"}
    assert (path.with_suffix(".md")).read_text().startswith("**Changes (simulated)**")
    path.write_text(whole.replace("-7.31", "-9.31"))
    try:
        with pytest.raises(InputError, match=r"headline\.json: was changed since it was written"):
            read_rows(path)
    finally:
        path.write_text(whole)


def test_a_static_plan_is_still_plain_yaml(derived):
    content = yaml.safe_load(derived["plan of serving"][0].read_text())
    assert content["plans"][0]["j_per_token"] == 0.4375 and len(content["sha256"]) == 64


def test_the_seal_is_of_the_content_not_of_its_layout(tmp_path):
    write_sealed(tmp_path / "a.json", {"schema": "s", "x": 1.25})
    content = json.loads((tmp_path / "a.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert read(tmp_path / "a.json", dict, "s", "", is_sealed=True)["x"] == 1.25


# -- another input than something was made of ----------------------------------------------------------------------


@pytest.fixture
def study(derived, tmp_path):
    """A folder with a profile and choices of it, as a study has them, and another profile of the same table."""
    at = derived["schedule"][0].parent
    shutil.copy(at / "p.parquet", tmp_path / "profile.parquet")
    choose = ["choose", str(tmp_path / "profile.parquet"), "-o"]
    assert main([*choose, str(tmp_path / f"schedules/{STRICT}.json")]) == 0
    assert main([*choose, str(tmp_path / "schedules/frontier.json"), "--frontier"]) == 0
    import_to_profile(at / "t.csv", tmp_path / "other.parquet", reference="900,5001")
    return tmp_path


def test_a_command_refuses_a_schedule_beside_another_profile(study, capsys):
    schedule, page = str(study / f"schedules/{STRICT}.json"), str(study / "page.html")
    assert main(["report", str(study / "profile.parquet"), schedule, "-o", page]) == 0
    os.unlink(page)
    for words in (
        ["report", str(study / "other.parquet"), schedule, "-o", page],
        ["study", "deployable", str(study / "other.parquet"), "--reserve-of", schedule, "-o", page],
    ):
        capsys.readouterr()
        assert main(words) == 2 and not os.path.exists(page)
        said = capsys.readouterr().err
        assert "was made of another profile than" in said and "other.parquet is now" in said and said.count("\n") == 1


def test_choices_of_a_study_are_refused_where_its_profile_is_another(study):
    results = Results(study)
    assert results.schedule(STRICT)["targets"] and results.frontier
    os.replace(study / "other.parquet", study / "profile.parquet")
    for read_it in (lambda: Results(study).schedule(STRICT), lambda: Results(study).frontier):
        with pytest.raises(InputError, match=r"was made of another profile than .*profile\.parquet is now; delete it"):
            read_it()
    # chosen again, as Snakemake does where the profile has a later date
    assert main(["choose", str(study / "profile.parquet"), "-o", str(study / f"schedules/{STRICT}.json")]) == 0
    assert Results(study).schedule(STRICT)["targets"]


def test_a_run_makes_again_what_is_older_than_its_inputs_and_refuses_the_rest(study):
    path, profile = study / f"schedules/{STRICT}.json", study / "profile.parquet"
    sealed.check_inputs(study)
    shutil.copy(study / "other.parquet", profile)
    made_ns = path.stat().st_mtime_ns
    os.utime(study / "schedules/frontier.json", ns=(made_ns, made_ns))
    os.utime(profile, ns=(made_ns + 1, made_ns + 1))
    sealed.check_inputs(study)  # Snakemake sees that it is to be made again
    os.utime(profile, ns=(made_ns - 1, made_ns - 1))
    with pytest.raises(InputError, match=r"frontier\.json: was made of another profile than .*profile\.parquet is now"):
        sealed.check_inputs(study)


def test_a_report_refuses_a_study_whose_files_were_changed(derived, study, capsys):
    path = study / "schedules/frontier.json"
    path.write_text(path.read_text().replace('"energy_change_percent": -', '"energy_change_percent": -9', 1))
    assert main(["report", str(study)]) == 2
    assert "frontier.json: was changed since it was written" in capsys.readouterr().err
    assert not (study / "report.html").exists()


def test_what_a_pipeline_solved_is_refused_beside_other_stages(derived, tmp_path):
    folder = tmp_path / "pipeline"
    shutil.copytree(derived["stages"][0].parent, folder)
    stages, source = folder / "stages.csv", derived["schedule"][0].parent / "stages.csv"
    assert PipelineStudy(folder).methods(4)
    whole = stages.read_text()
    stages.write_text(whole.replace("0.1,", "0.125,", 1))
    assert stages.read_text() != whole
    with pytest.raises(InputError, match=r"study\.json: was made of another stages than .*stages\.csv is now; make it"):
        PipelineStudy(folder)
    with pytest.raises(InputError, match=r"study\.json: was made of another stages than"):
        sealed.check_inputs(folder)  # whatever the dates: one job writes both
    # another study in its place: what was solved before is not of it
    asked = {name: PipelineStudy(derived["stages"][0].parent)[name] for name in (*KEYS, "name")}
    make_study(source, folder, asked | {"blocking_w": 65.5})
    for read_it in (lambda: PipelineStudy(folder).methods(4), lambda: PipelineStudy(folder).plan(4, "one-clock")):
        with pytest.raises(
            InputError, match=r"was made of another study than .*study\.json is now; write it again|write"
        ):
            read_it()
    solve_plans(Solver(PipelineStudy(folder)), 4)
    assert PipelineStudy(folder).methods(4) and PipelineStudy(folder).plan(4, "one-clock")


def test_what_a_serving_study_found_is_refused_beside_other_inputs(derived, tmp_path, capsys):
    folder = tmp_path / "serving"
    shutil.copytree(derived["experiment"][0].parents[1], folder)
    study = ServingStudy(folder)
    asked = {name: study[name] for name in serving_study.ServingOptions.__annotations__} | {
        "profile": str(folder / "profile.csv")
    }
    serving_study.make_study(folder, asked)
    with pytest.raises(
        InputError, match=r"systems\.json: was made of another study than .*study\.json is now; delete it"
    ):
        ServingStudy(folder).experiment("systems")
    profile = folder / "profile.csv"
    profile.write_text(profile.read_text() + "# as of Monday\n")
    assert main(["serving", "experiment", "systems", str(folder)]) == 2
    assert "study.json: was made of another profile than" in capsys.readouterr().err


def test_pages_print_what_pipelines_and_experiments_were_made_of(derived):
    stages = derived["stages"][0]
    study = PipelineStudy(stages.parent)
    (name, own), *of = of_file(stages.parent / "mb4/methods.csv", "mb4/methods.csv", study.made_of)
    assert (name, len(own)) == ("mb4/methods.csv", 16)
    assert of == [
        ("its stages.csv", digest(stages)[:16]),
        ("its study.json", digest(stages.parent / "study.json")[:16]),
    ]
    path, serving = derived["experiment"][0], ServingStudy(derived["experiment"][0].parents[1])
    (_, (said, of_study)) = of_file(path, "systems.json", serving.made_of)
    assert (said, of_study) == ("its study.json", digest(path.parents[1] / "study.json")[:16])
