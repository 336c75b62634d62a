"""A small study from profile to tables: figures agree with each other, and bad requests are one line."""

import json
import re
import shutil

import pandas as pd
import pytest
from chromium import check_usable

from kernel_dvfs.cli.main import main
from kernel_dvfs_serving import experiments, tuned
from kernel_dvfs_serving.report import figures
from kernel_dvfs_serving.study import ServingOptions, ServingStudy, write_experiment
from kernel_dvfs_serving.study_plan import REPLAYED, line_of_serving
from kernel_dvfs_serving.system import CAPPED, DEFAULTS, FIXED, HINDSIGHT, LEAST_REQUESTS, SETTINGS, TUNED
from kernel_dvfs_serving.trace import hours, write_trace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study of a minute and a half on four servers; not to be changed."""
    place = tmp_path_factory.mktemp("study")
    profile, trace = place / "profile.csv", place / "synthetic.csv"
    clocks = ["--tp", "4,8", "--core-mhz", "1200,1980", "--requests", "20"]
    assert main(["serving", "profile", *clocks, "-o", str(profile)]) == 0
    write_trace(trace, hours(6.0, seed=1, span_s=90))
    asked = {key: value for key, value in DEFAULTS.items() if key in ServingOptions.__annotations__} | {
        "profile": str(profile),
        "trace": str(trace),
        "trace_times": 1,
        "usd_per_kwh": 0.1,
        "settings": SETTINGS | {"servers": 4, "pools": 2, "pool_epoch_s": 60.0},
    }
    assert main(["serving", "study", str(place / "study"), "--options", json.dumps(asked)]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "LOADS_SPAN_S", 60)
        for name in ("systems", "loads", "sensitivity"):
            assert main(["serving", "experiment", name, str(place / "study")]) == 0
    return place / "study"


def table(folder, name) -> pd.DataFrame:
    assert main(["output", str(folder), f"tables/{name}"]) == 0
    assert "simulated" in (folder / f"tables/{name}.md").read_text().splitlines()[0]
    return pd.read_csv(folder / f"tables/{name}.csv")


def edited(folder, tmp_path, edit, *names):
    """A copy of the study in which `edit` has changed each outcome of the experiments."""
    copied = tmp_path / "study" / "study"
    shutil.copytree(folder.parent, copied.parent, symlinks=True)
    for name in names or ("systems",):
        study = ServingStudy(copied)
        runs = study.experiment(name)
        for each in runs:
            each |= edit(each["system"])
        write_experiment(study.path(name), runs, study.made_of)
    return copied


def test_every_saving_comes_with_latencies_and_kept_promises(folder):
    frame = table(folder, "savings").set_index("system")
    assert {"ttft_p50_ms", "ttft_p99_ms", "tbt_p50_ms", "tbt_p99_ms", "kept_percent", "promise_kept"} <= set(frame)
    states = frame[["busy_kwh", "idle_kwh", "starting_kwh", "switching_kwh"]].sum(axis=1)
    assert states.to_numpy() == pytest.approx(frame.energy_kwh.to_numpy(), rel=1e-6)
    assert (frame.in_time + frame.late + frame.rejected == frame.requests).all()
    # told where the promise is kept, and nowhere else
    assert (frame.change_percent.notna() == frame.promise_kept).all()
    assert frame.change_percent[TUNED] == 0 and frame.change_percent["SinglePool"] > 0
    # only what is fixed has a plan that could be started
    assert set(frame.index[frame.plan.notna()]) == set(FIXED)
    assert {"DynamoLLM", HINDSIGHT} <= set(frame.index)
    # each is tried on both halves, and with slower steps
    assert frame.filter(like="halves_kept").shape[1] == 4 and frame.filter(like="halves_kept").notna().all().all()
    assert " wins with " in (line := line_of_serving(str(folder))) and "simulated" in line


def test_the_fixed_plans_keep_their_promise_with_all_margins(folder):
    runs = {each["system"]: each for each in ServingStudy(folder).experiment("systems")}
    assert all(min(runs[name]["tried"]["kept_percent"].values()) >= 99 for name in FIXED)
    assert runs[TUNED]["j_per_token_in_time"] < runs["SinglePool"]["j_per_token_in_time"]
    frame = table(folder, "margins").set_index("kept_on")
    assert frame.j_per_token_in_time["both halves, slower steps"] == pytest.approx(
        runs[TUNED]["tried"]["j_per_token_in_time"], rel=1e-9
    )
    both, slower = frame.j_per_token_in_time.iloc[-2:]
    assert both <= slower


def test_a_promise_that_is_broken_is_no_saving(folder, tmp_path):
    """The label of a system that keeps fewer promises than it must says so, and it has no bar."""
    copied = edited(folder, tmp_path, lambda system: {"kept_percent": 98.0 if system == "ScaleFreq" else 100.0})
    frame = figures.savings_data(ServingStudy(copied)).set_index("system")
    assert list(frame.index[frame.label.str.contains("promise broken, kept 98.0 %")]) == ["ScaleFreq"]
    assert frame.change_percent["ScaleFreq"] == 0 and not frame.label.str.contains("no baseline").any()


def test_nothing_is_saved_against_a_baseline_that_breaks_the_promise(folder, tmp_path):
    """A baseline that drops requests takes little energy; no change is told against it, in no table and no figure."""
    copied = edited(
        folder, tmp_path, lambda system: {"kept_percent": 80.0 if system == TUNED else 100.0}, "systems", "loads"
    )
    assert table(copied, "savings").change_percent.isna().all()
    assert table(copied, "cost").cost_change_percent.isna().all()
    paper = table(copied, "paper").set_index("claim").loc["energy, tuned static plan"]
    assert pd.isna(paper.ours_percent) and "the baseline breaks its promise" in paper.why
    assert main(["output", str(copied), "figures/savings"]) == 0
    label = figures.savings_data(ServingStudy(copied)).set_index("system").label
    assert label[TUNED].startswith(" promise broken") and label.drop(TUNED).str.startswith(" no baseline").all()
    assert main(["report", str(copied)]) == 0
    page = (copied / "report.html").read_text()
    first = page[: page.index('<details class="part">')]
    assert first.count("promise broken") == 1 and first.count("no plan keeps it") >= 4
    assert "% of the promises kept; no static plan keeps 99 %." in first


def test_what_the_answer_hangs_on_has_the_plan_among_it(folder):
    frame = table(folder, "sensitivity")
    best = next(each for each in ServingStudy(folder).experiment("systems") if each["system"] == TUNED)
    mine = {"degree": f"TP{best['tp']}", "clock, MHz": best["clock"], "servers": str(best["servers"])}
    mine["step, tokens"] = str(best["step_tokens"])
    for varied, value in mine.items():
        (found,) = frame.j_per_token_in_time[(frame.varied == varied) & (frame.value.astype(str) == value)]
        assert found == pytest.approx(best["j_per_token_in_time"], rel=1e-9)
    assert set(frame.varied) == {*mine, "load slot, s"}


def test_the_page_answers_first_and_briefly(folder, capsys):
    assert main(["output", str(folder), "tables/savings", "tables/margins", "figures/savings"]) == 0
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    first = re.sub(r"<[^>]+>", " ", page[page.index("<main>") : page.index('<details class="part">')])
    assert len(first.split()) < 280  # the lines to start it have a flag for each limit
    best = min(
        (each for each in ServingStudy(folder).experiment("systems") if each["system"] in FIXED),
        key=lambda each: each["j_per_token_in_time"],
    )
    assert f"{best['j_per_token_in_time']:.3f} J a token" in first and "simulated" in first
    assert "vllm serve llama2-70b --tensor-parallel-size" in first
    # a promise that is broken is no saving
    broken = [each for each in ServingStudy(folder).experiment("systems") if each["kept_percent"] < 99]
    shown = sum(each["system"] in (*FIXED, "DynamoLLM", HINDSIGHT) for each in broken)
    assert first.count("promise broken") == shown
    assert 'id="figure-savings"' in page and 'data-table="margins"' in page
    assert "http" not in page.replace("http-equiv", "").replace("--http-port", "").replace("http://REPLICA", "")


def test_anybody_can_use_the_page(folder, tmp_path):
    assert main(["output", str(folder), "savings", "margins"]) == 0
    assert main(["report", str(folder), "-o", str(tmp_path / "page.html")]) == 0
    check_usable(tmp_path / "page.html", tmp_path)


def test_page_and_terminal_name_one_winner_whoever_it_is(folder, tmp_path):
    known = {
        "ScaleInst": {"kept_percent": 99.9, "j_per_token_in_time": 0.001},  # in no row of the page otherwise
        HINDSIGHT: {"kept_percent": 100.0, "j_per_token_in_time": 0.0001},
    }
    copied = edited(folder, tmp_path, lambda system: known.get(system, {}))
    assert main(["output", str(copied), "tables/savings"]) == 0 and main(["report", str(copied)]) == 0
    assert "ScaleInst wins with 0.001 J a token" in line_of_serving(str(copied))
    page = (copied / "report.html").read_text()
    assert "ScaleInst serves this trace for the least energy: 0.001 J a token" in page and "<td>ScaleInst" in page
    assert "Kept on both halves" not in page and "Nothing is forecast" not in page


def test_the_page_starts_the_winner_with_every_limit(folder, tmp_path):
    cheap = {"kept_percent": 99.9, "j_per_token_in_time": 0.001}
    for name, router, clocks in (
        (LEAST_REQUESTS, "vllm-router --policy cache_aware", "--lock-gpu-clocks="),
        (CAPPED, "--router-mode kv", "--power-limit="),
    ):
        copied = edited(folder, tmp_path / name, lambda system, name=name: cheap if system == name else {})
        assert main(["report", str(copied)]) == 0
        page = (copied / "report.html").read_text()
        assert router in page and clocks in page and "--max-num-batched-tokens" in page


def test_cost_and_carbon_follow_servers_and_energy(folder):
    savings, cost = table(folder, "savings").set_index("system"), table(folder, "cost").set_index("system")
    one = cost.loc["SinglePool"]
    assert one.server_usd_per_hour == pytest.approx(4 * 88.5)
    assert one.energy_usd_per_hour == pytest.approx(savings.mean_power_w["SinglePool"] / 1000 * 0.1)
    assert one.co2_kg_per_hour == pytest.approx(savings.mean_power_w["SinglePool"] / 1000 * 0.226)


def test_the_papers_figures_are_quoted_in_both_versions_with_distance_and_reason(folder):
    frame = table(folder, "paper").set_index("claim")
    row = frame.loc["energy, tuned static plan"]
    assert (row.paper_arxiv_v1_percent, row.paper_hpca_percent) == (-53, -52)
    assert row.distance_hpca_points == pytest.approx(row.ours_percent + 52, nan_ok=True) and len(row.why) > 20
    assert pd.isna(row.ours_percent) == ("promise broken" in row.why)
    high = frame.loc["high load (4000 tokens/s a server), SinglePool on all servers"]
    assert (high.paper_arxiv_v1_percent, high.paper_hpca_percent) == (-23.4, -15)
    found = [each for each in ServingStudy(folder).experiment("loads") if each["tps_per_server"] == 4000]
    base, ours = (each["j_per_token_in_time"] for each in found)
    kept = all(each["kept_percent"] >= 99 for each in found)
    assert high.ours_percent == pytest.approx(100 * (ours / base - 1) if kept else float("nan"), nan_ok=True)
    # a minute does not stand beside the paper's day, nor its weeks
    assert not any("24 h" in claim or "week" in claim for claim in frame.index)


@pytest.mark.parametrize("name", ["classes", "sensitivity"])
def test_the_other_tables_are_written(folder, name):
    assert len(table(folder, name)) >= 8


@pytest.mark.parametrize("name", ["savings", "power", "sensitivity"])
def test_figures_have_units_and_the_one_sign_and_are_readable(folder, name, cut_off):
    plot = figures.OUTPUTS["figure", name].make(ServingStudy(folder))
    assert cut_off(plot) == []
    axes = " ".join(str(plot.labels.get(key, "")) for key in ("x", "y")).replace("\n", " ")
    if name == "savings":
        assert "change of energy, % (negative: saved)" in axes
        assert "better: " in plot.labels.subtitle.replace("\n", " ")
    assert main(["output", str(folder), f"figures/{name}"]) == 0
    assert (folder / f"figures/{name}.png").stat().st_size > 10_000


def test_bars_show_the_changes_of_their_table(folder):
    bars = figures.OUTPUTS["figure", "savings"].make(ServingStudy(folder)).data.set_index("system").change_percent
    known = table(folder, "savings").set_index("system").change_percent.dropna()
    both = [system for system in known.index if system in bars.index]
    assert len(both) > 3 and bars[both].astype(float).tolist() == pytest.approx(known[both].tolist())


def test_one_replay_by_command_and_its_bad_options(folder, tmp_path, capsys):
    study = ServingStudy(folder)
    out = tmp_path / "out.json"
    words = ["serving", "replay", study["trace"], "--profile", study["profile"], "--servers", "2", "--pools", "2"]
    assert main([*words, "--set", "misprediction=0.4", "clock_epoch_s=10", "-o", str(out)]) == 0
    found = json.loads(out.read_text())
    assert (
        found["settings"]["misprediction"] == 0.4
        and found["in_time"] + found["late"] + found["rejected"] == found["requests"]
    )
    capsys.readouterr()
    for more, said in (
        (["--system", "Dynamo"], "allowed: SinglePool"),
        (["--set", "epoch=3"], "no setting 'epoch'"),
        (["--set", "start_s=soon"], "start_s = 'soon' is not possible; allowed: a number from 0 to 3600"),
        (["--set", "start_s=-1"], "allowed: a number from 0 to 3600"),
        (["--set", "load_slot_s=0"], "allowed: a number from 0.1 to"),
        (["--set", "load_prediction=tea"], "allowed: template, oracle"),
        (["--pools", "4"], "2 servers are too few for 4 pools"),
        (["--pools", "5"], "pools = 5; allowed: 1, 2, 3, 4, 6, 9"),
    ):
        system = [] if "--system" in more else ["--system", "ScaleFreq"]
        assert main([*words, *system, *more, "-o", str(tmp_path / "no.json")]) == 2
        text = capsys.readouterr().err
        errors = [line for line in text.splitlines() if not line.startswith("note: ")]
        assert len(errors) == 1 and said in errors[0], text
    assert not (tmp_path / "no.json").exists()


def test_an_experiment_or_a_table_before_its_time_is_one_line(folder, tmp_path, capsys):
    assert main(["output", str(folder), "tables/misprediction"]) == 2
    assert "experiments/misprediction.json: missing; run snakemake --cores 1 serving" in capsys.readouterr().err
    assert main(["serving", "experiment", "weeks", str(folder)]) == 2
    assert "allowed: systems" in capsys.readouterr().err
    assert main(["serving", "experiment", "systems", str(tmp_path)]) == 2
    assert "study.json: missing; run snakemake --cores 1 serving" in capsys.readouterr().err


@pytest.mark.parametrize("lost", [{"tps_per_server": 2000}, {"system": "DynamoLLM"}])
def test_constant_loads_other_than_the_paper_s_are_one_line_with_the_remedy(folder, tmp_path, capsys, lost):
    copied = tmp_path / "study"
    shutil.copytree(folder, copied)
    study = ServingStudy(copied)
    path, runs = study.path("loads"), study.experiment("loads")
    write_experiment(path, [each for each in runs if not lost.items() <= each.items()], study.made_of)
    assert main(["output", str(copied), "tables/paper"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path}: no DynamoLLM at {lost.get('tps_per_server', 650)} tokens/s a server" in line
    assert "delete it and run snakemake --cores 1 serving_paper" in line


@pytest.mark.parametrize("name", [name for name, cores in REPLAYED.items() if cores > 1])
def test_an_experiment_that_the_rules_give_two_cores_uses_both_and_finds_what_it_finds_alone(
    folder, tmp_path, monkeypatch, name
):
    begun = []

    class Seen(tuned.Second):
        def __init__(self, *about):
            begun.append(name)
            super().__init__(*about)

    monkeypatch.setattr(tuned, "Second", Seen)
    monkeypatch.setattr(tuned, "LONG", 0)
    copied = tmp_path / "study"
    shutil.copytree(folder, copied)
    assert main(["serving", "experiment", name, str(copied), "--cores", "2"]) == 0 and begun == [name]
    alone, found = (
        [{**each, "solve_s": 0} for each in ServingStudy(study).experiment(name)] for study in (folder, copied)
    )
    assert found == alone


def test_a_trace_by_command(tmp_path, capsys):
    path = tmp_path / "synthetic.csv"
    assert main(["serving", "trace", "--week", "coding", "--scale", "0.001", "--days", "0.5", "-o", str(path)]) == 0
    made = capsys.readouterr().out
    assert main(["serving", "trace", str(path)]) == 0
    read = capsys.readouterr().out
    digest = next(line for line in read.splitlines() if line.startswith("sha256 "))
    assert digest in made and len(digest) == 7 + 64
    assert main(["serving", "trace"]) == 2
