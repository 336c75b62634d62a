"""From benchmark output and a power log to a profile.

No server ran for this: vLLM's and SGLang's output is written here in the form that their sources give it, with figures
of a made-up machine.
"""

import json
import re
import time
from datetime import UTC, datetime

import pytest
import yaml
from synthetic_profile import LineEngine

from kernel_dvfs.cli.main import main
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.benchmarks import import_runs, read_power, read_results
from kernel_dvfs_serving.machine import MeasuredMachine
from kernel_dvfs_serving.make_profile import PoissonArrivals, measure
from kernel_dvfs_serving.profile import read_profile

# as the benchmark's machine says it, wherever that stands
ENDED = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
DURATION_S = 40.0
TP = 4


def vllm_result(point, load, tps, minutes, **said):
    """As vllm/benchmarks/serve.py writes it with --save-result, without --save-detailed."""
    inputs, outputs = float(load.input.mean()), float(load.output.mean())
    completed = 200
    duration_s = completed * (inputs + outputs) / tps
    return {
        "date": ENDED.replace(minute=minutes).strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": "openai",
        "backend": "openai",
        "label": "openai",
        "model_id": "meta-llama/Llama-2-70b-hf",
        "tokenizer_id": "meta-llama/Llama-2-70b-hf",
        "num_prompts": completed,
        "tp": str(TP),
        "request_rate": tps / (inputs + outputs),
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": duration_s,
        "completed": completed,
        "failed": 0,
        "total_input_tokens": round(completed * inputs),
        "total_output_tokens": round(completed * outputs),
        "request_throughput": completed / duration_s,
        "request_goodput": None,
        "output_throughput": completed * outputs / duration_s,
        "total_token_throughput": tps,
        "max_output_tokens_per_s": 2 * tps,
        "max_concurrent_requests": 20,
        "mean_ttft_ms": 1e3 * point.ttft_mean_s,
        "median_ttft_ms": 1e3 * point.ttft_p50_s,
        "std_ttft_ms": 1.0,
        "p99_ttft_ms": 1e3 * point.ttft_p99_s,
        "mean_tpot_ms": 1e3 * point.tbt_mean_s,
        "median_tpot_ms": 1e3 * point.tbt_mean_s,
        "std_tpot_ms": 1.0,
        "p99_tpot_ms": 1e3 * point.tbt_p99_s,
        "mean_itl_ms": 1e3 * point.tbt_mean_s,
        "median_itl_ms": 1e3 * point.tbt_p50_s,
        "std_itl_ms": 1.0,
        "p99_itl_ms": 1e3 * point.tbt_p99_s,
    } | said


def nvidia_log(spans, gpus=TP, mhz=1400):
    """nvidia-smi --query-gpu=timestamp,index,power.draw.instant,clocks.sm --format=csv over (start, end, W) spans."""
    lines = ["timestamp, index, power.draw.instant [W], clocks.current.sm [MHz]"]
    for start_s, end_s, watt in spans:
        for step in range(int((end_s - start_s) / 0.5)):
            moment = datetime.fromtimestamp(start_s + 0.5 * step, UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
            lines += [f"{moment}, {gpu}, {watt / gpus:.2f} W, {mhz} MHz" for gpu in range(gpus)]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two clocks, two classes, four rates each, as files; [(class, clock, tokens/s, the instance's own figures)]."""
    folder, truth, runs = tmp_path_factory.mktemp("sweep"), [], []
    for clock in ("800", "1400"):
        engine, spans = LineEngine(TP, clock), []
        for place, class_ in enumerate(("SS", "MM")):
            load = PoissonArrivals.draw(class_, 80)
            for step, tps in enumerate((300, 900, 1800, 3000)):
                point = measure(engine, 300_000, load, tps)
                minutes = 30 * place + 6 * step + 5
                result = vllm_result(point, load, tps, minutes, core_mhz=clock)
                ends_s = ENDED.replace(minute=minutes).timestamp()
                spans.append((ends_s - result["duration"] - 1, ends_s + 1, point.power_w))
                (folder / f"{clock}-{class_}-{tps}.json").write_text(json.dumps(result))
                truth.append((class_, clock, tps, point))
        (folder / f"power-{clock}.csv").write_text(nvidia_log(sorted(spans), mhz=int(clock)))
        runs.append({"result": f"{clock}-*.json", "power": f"power-{clock}.csv", "idle_power_w": engine.idle_w})
    about = {"model": "mine", "gpu": "mine", "kv_tokens": {TP: 300_000}, "kv_byte_per_token": 327_680}
    (folder / "runs.yaml").write_text(yaml.safe_dump(about | {"runs": runs}))
    return folder, truth


@pytest.fixture(scope="module")
def profile(sweep):
    folder, _ = sweep
    assert main(["serving", "import", str(folder / "runs.yaml"), "-o", str(folder / "profile.csv")]) == 0
    return read_profile(folder / "profile.csv")


def test_a_sweep_becomes_a_measured_profile(sweep, profile):
    assert profile.sources == {"measured"} and profile.classes == ["SS", "MM"] and profile.clocks(TP) == ["800", "1400"]
    for class_, clock, tps, point in sweep[1]:
        found = profile.at(class_, TP, clock, min(tps, profile.curve(class_, TP, clock).tps[-1]))
        for name in ("power_w", "ttft_p50_s", "ttft_p99_s", "tbt_p50_s", "tbt_p99_s"):
            assert getattr(found, name) == pytest.approx(getattr(point, name), rel=1e-3), (class_, clock, tps, name)
    idle = profile.at("SS", TP, "1400", 0)
    assert idle.power_w == pytest.approx(LineEngine(TP, "1400").idle_w, rel=1e-4)


def test_an_imported_profile_drives_a_machine(profile):
    own = MeasuredMachine(profile, max_batch=256, chunk_tokens=512)
    slow, fast = (own.engine(TP, clock).step(16, 0, 8000) for clock in ("800", "1400"))
    assert slow[0] > fast[0] and own.kv_tokens(TP) == 300_000


def zeus_log(start_s, end_s, watt, gpus=TP):
    """Samples of Zeus's PowerMonitor: Unix time, mW."""
    samples = [(start_s + 0.5 * step, gpu) for step in range(int((end_s - start_s) / 0.5)) for gpu in range(gpus)]
    lines = [f"{moment:.1f},{gpu},{1000 * watt / gpus:.0f}" for moment, gpu in samples]
    return "\n".join(["timestamp,gpu_index,power_mw", *lines]) + "\n"


def one_run(folder, said, power, about=(), **run):
    (folder / "r.json").write_text(said if isinstance(said, str) else json.dumps(said))
    (folder / "p.csv").write_text(power)
    own = {"result": "r.json", "power": "p.csv", "core_mhz": 1400, "idle_power_w": 400} | run
    listed = {"model": "m", "gpu": "g", "runs": [own]} | dict(about)
    (folder / "list.yaml").write_text(yaml.safe_dump(listed))
    return import_runs(folder / "list.yaml")


@pytest.fixture
def usual():
    point = measure(LineEngine(TP, "1400"), 300_000, PoissonArrivals.draw("SS", 80), 900)
    return vllm_result(point, PoissonArrivals.draw("SS", 80), 900, 5)


@pytest.fixture
def log(usual):
    ends_s = ENDED.replace(minute=5).timestamp()
    return nvidia_log([(ends_s - usual["duration"] - 1, ends_s + 1, 1200.0)])


def test_power_before_and_after_a_run_does_not_count(tmp_path, usual):
    ends_s = ENDED.replace(minute=5).timestamp()
    starts_s = ends_s - usual["duration"]
    power = nvidia_log([(starts_s - 60, starts_s, 100.0), (starts_s, ends_s, 1200.0), (ends_s, ends_s + 60, 100.0)])
    (_, row), _ = one_run(tmp_path, usual, power)
    assert row["power_w"] == pytest.approx(1200, rel=0.01) and row["tps"] == pytest.approx(900, rel=1e-3)


def test_power_and_tokens_are_of_the_same_part_of_a_run(tmp_path, usual):
    """A run that fills for 4 s and drains for 4 s of 40, at half the tokens and less power: both ends are left out."""
    ends_s = ENDED.replace(minute=5).timestamp()
    steady, rest = 10, 5  # requests a second, in the middle and at either end
    starts = [0.2 * k for k in range(20)] + [4 + 0.1 * k for k in range(320)] + [36 + 0.2 * k for k in range(20)]
    count = len(starts)
    # 100 tokens of prompt, and 41 of answer: at once, then 40 within 0.3 s
    said = {"duration": 40.0, "completed": count, "num_prompts": count, "failed": 0, "start_times": starts}
    said |= {"input_lens": [100] * count, "output_lens": [41] * count, "ttfts": [0.02] * count}
    said |= {"itls": [[0.3 / 40] * 40] * count, "total_input_tokens": 100 * count, "total_output_tokens": 41 * count}
    power = nvidia_log(
        [(ends_s - 41, ends_s - 36, 700.0), (ends_s - 36, ends_s - 4, 1200.0), (ends_s - 4, ends_s, 700.0)]
    )
    (_, row), notes = one_run(tmp_path, usual | said, power)
    assert row["power_w"] == pytest.approx(1200, rel=0.01) and not notes
    assert row["tps"] == pytest.approx(steady * 141, rel=0.02)
    # without the requests' times both are of the whole run, and energy per token is still that of one measurement
    whole = {key: value for key, value in (usual | said).items() if key != "start_times"}
    (_, row), notes = one_run(tmp_path, whole, power)
    assert row["power_w"] == pytest.approx(0.2 * 700 + 0.8 * 1200, rel=0.02) and len(notes) == 1
    assert row["tps"] == pytest.approx((0.2 * rest + 0.8 * steady) * 141, rel=0.02)


def test_lines_of_sglang_are_read_with_a_log_each(tmp_path, usual, log):
    """python -m sglang.bench_serving --output-file: no date, no count of failures, its own names besides."""
    line = {key: value for key, value in usual.items() if key not in ("date", "failed", "num_prompts", "tp")}
    line |= {"tag": None, "backend": "sglang", "dataset_name": "random", "total_throughput": 900.0, "p95_itl_ms": 30.0}
    (idle, row), notes = one_run(tmp_path, json.dumps(line) + "\n", log, tp=TP)
    assert row["tps"] == pytest.approx(900, rel=1e-3)
    assert len(notes) == 1 and "power and tokens are of whole runs" in notes[0]
    assert (idle["tps"], idle["power_w"], idle["ttft_p50_s"]) == (0, 400, row["ttft_p50_s"])
    with pytest.raises(InputError, match="no date in it, so each result needs a run with a power log of its own"):
        one_run(tmp_path, 2 * (json.dumps(line) + "\n"), log, tp=TP)


@pytest.fixture
def undated(usual):
    return {key: value for key, value in usual.items() if key != "date"}


@pytest.mark.parametrize("wrong", [0.8, 1.2, 60])
def test_a_log_longer_or_shorter_than_an_undated_run_is_not_averaged(tmp_path, undated, wrong):
    long_s = wrong * undated["duration"]
    power = nvidia_log([(0, long_s / 2, 500.0), (long_s / 2, long_s, 1200.0)])
    said = f"no date in it, and .*p.csv is .* s long for a run of {undated['duration']:.0f} s; cut the log to the run"
    with pytest.raises(InputError, match=said):
        one_run(tmp_path, undated, power)


def test_an_undated_run_is_cut_out_of_a_longer_log_by_its_end(tmp_path, usual, undated):
    ends_s = ENDED.replace(minute=5).timestamp()
    starts_s = ends_s - usual["duration"]
    power = nvidia_log([(starts_s - 600, starts_s, 420.0), (starts_s, ends_s, 1200.0), (ends_s, ends_s + 600, 420.0)])
    (_, row), _ = one_run(tmp_path, undated, power, ends="20260301-120500")
    assert row["power_w"] == pytest.approx(1200, rel=0.01)
    with pytest.raises(InputError, match=r"ends is given, but .* has a date of its own; leave ends out"):
        one_run(tmp_path, usual, power, ends="20260301-120500")
    with pytest.raises(InputError, match=r"run 1: ends 'noon'; expected such as 20260131-235959"):
        one_run(tmp_path, undated, power, ends="noon")


@pytest.fixture(params=["UTC", "Europe/Paris", "America/New_York"])
def elsewhere(request, monkeypatch):
    """The importer's own time zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_the_importers_time_zone_changes_nothing(tmp_path, usual, log, elsewhere):
    """A benchmark in Paris (UTC+1 on that day): nvidia-smi's log is in its local time, Zeus's in Unix time."""
    (_, row), _ = one_run(tmp_path, usual, log)
    assert row["power_w"] == pytest.approx(1200, rel=1e-3)
    ended_s = ENDED.replace(minute=5).timestamp() - 3600
    busy = zeus_log(ended_s - usual["duration"] - 1, ended_s + 1, 1200)
    quiet = zeus_log(ended_s + 1, ended_s + 7200, 500).split("\n", 1)[1]
    (_, row), _ = one_run(tmp_path, usual, busy + quiet, {"utc_offset_h": 1})
    assert row["power_w"] == pytest.approx(1200, rel=1e-3)
    with pytest.raises(
        InputError, match="in Unix time and the result's date in local time; give the list utc_offset_h"
    ):
        one_run(tmp_path, usual, busy + quiet)


def test_power_under_load_that_is_no_more_than_idle_is_refused(tmp_path, usual, log):
    with pytest.raises(
        InputError, match=r"tp 4, 1400 MHz: 1200.0 W at 900 tokens/s, but idle_power_w 1300; is the log"
    ):
        one_run(tmp_path, usual, log, idle_power_w=1300)


def test_idle_power_is_said_once_for_all_runs_of_a_setting(tmp_path, usual, log):
    """As SGLang's benchmark needs, with a run for each rate."""
    (tmp_path / "r1.json").write_text(json.dumps(usual))
    (tmp_path / "r2.json").write_text(json.dumps(usual | {"duration": usual["duration"] / 1.1}))
    (tmp_path / "p.csv").write_text(log)
    runs = [{"result": f"r{place}.json", "power": "p.csv", "core_mhz": 1400} for place in (1, 2)]

    def imported():
        (tmp_path / "list.yaml").write_text(yaml.safe_dump({"model": "m", "gpu": "g", "runs": runs}))
        assert main(["serving", "import", str(tmp_path / "list.yaml"), "-o", str(tmp_path / "p2.csv")]) == 0
        return read_profile(tmp_path / "p2.csv").curve("SS", TP, "1400")

    with pytest.raises(InputError, match=r"tp 4, 1400 MHz: no idle_power_w; give it to one of its runs"):
        (tmp_path / "list.yaml").write_text(yaml.safe_dump({"model": "m", "gpu": "g", "runs": runs}))
        import_runs(tmp_path / "list.yaml")
    runs[1]["idle_power_w"] = 400
    once = imported()
    assert once.tps == pytest.approx([0, 900, 990], rel=1e-3) and once.power_w[0] == 400
    runs[0]["idle_power_w"] = 400
    assert imported().power_w.tolist() == once.power_w.tolist()


def test_a_failed_request_is_of_no_class(tmp_path, usual, log):
    """vLLM and SGLang count no answer tokens of it, whatever was asked."""
    said = {"completed": 199, "failed": 1, "input_lens": [100] * 200, "output_lens": [200] * 199 + [0]}
    said |= {"total_input_tokens": 199 * 100, "total_output_tokens": 199 * 200}
    (_, row), _ = one_run(tmp_path, usual | said, log)
    assert (row["class"], row["output_tokens"]) == ("SM", 200)


def test_a_list_in_a_folder_with_brackets_finds_its_results(tmp_path, usual, log):
    folder = tmp_path / "sweep[1]"
    folder.mkdir()
    assert len(one_run(folder, usual, log, result="r*.json")[0]) == 2
    assert len(one_run(folder, usual, log, result=str(tmp_path / "sweep[[]1]" / "r.json"))[0]) == 2


def test_a_refused_import_leaves_no_profile(tmp_path, usual, log, capsys):
    """What import_runs takes, but cannot be read between: two results at one load."""
    (tmp_path / "kept.csv").write_text("mine\n")
    for place in ("new.csv", "kept.csv"):
        one_run(tmp_path, json.dumps(usual) + json.dumps(usual), log)
        assert main(["serving", "import", str(tmp_path / "list.yaml"), "-o", str(tmp_path / place)]) == 2
        said = capsys.readouterr().err
        assert "appears twice" in said and said.count("\n") == 1
    assert not (tmp_path / "new.csv").exists() and (tmp_path / "kept.csv").read_text() == "mine\n"


def test_samples_of_zeus_are_read(tmp_path):
    (tmp_path / "z.csv").write_text("timestamp,gpu_index,power_mw\n100.0,0,300000\n100.1,0,310000\n100.1,1,290000\n")
    samples = read_power(tmp_path / "z.csv").samples
    assert samples["0"][:, 1].tolist() == [300, 310] and samples["1"][0, 0] == 100.1


def two_gpus(identity, ends_s, seconds, name="{}"):
    """A log of a busy GPU of 520 W and an idle one of 70 W, told apart by one column or by none."""
    lines = [f"timestamp, {identity}power.draw [W]"]
    for step in range(int((seconds + 2) / 0.5)):
        for gpu, watt in (("A7", 520), ("B9", 70)):
            moment = datetime.fromtimestamp(ends_s - seconds - 1 + 0.5 * step + 0.001 * (watt == 70), UTC)
            own = f"{name.format(gpu)}, " if identity else ""
            lines.append(f"{moment.strftime('%Y/%m/%d %H:%M:%S.%f')[:-3]}, {own}{watt}.00 W")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("identity", ["index", "uuid", "gpu_uuid", "pci.bus_id", "serial", "gpu_serial"])
def test_gpus_are_told_apart_by_whatever_names_them(tmp_path, usual, identity):
    """The neighbour that idles is not averaged in, whatever column tells it apart."""
    said = usual | {"tp": "1"}
    power = two_gpus(f"{identity}, ", ENDED.replace(minute=5).timestamp(), usual["duration"])
    with pytest.raises(InputError, match=r"power of 2 GPUs \(A7, B9\), but tp 1; .*gpus: \[A7\]"):
        one_run(tmp_path, said, power, idle_power_w=60)
    (_, row), _ = one_run(tmp_path, said, power, idle_power_w=60, gpus=["A7"])
    assert row["power_w"] == pytest.approx(520)


def test_a_log_of_gpus_that_nothing_tells_apart_is_refused(tmp_path, usual):
    ends_s = ENDED.replace(minute=5).timestamp()
    power = two_gpus("", ends_s, usual["duration"])
    with pytest.raises(InputError, match=r"p.csv: several samples at one time: of several GPUs.*uuid"):
        one_run(tmp_path, usual | {"tp": "1"}, power, idle_power_w=60)
    twice = two_gpus("index, ", ends_s, usual["duration"], "0").replace(".001,", ".000,").replace(".501,", ".500,")
    with pytest.raises(InputError, match=r"several samples of GPU 0 at one time"):
        one_run(tmp_path, usual | {"tp": "1"}, re.sub(r"\.\d\d\d,", ".000,", twice), idle_power_w=60)


def test_a_gpu_may_have_several_names(tmp_path):
    text = "timestamp,index,uuid,power.draw [W]\n2026/03/01 12:00:00.000,0,GPU-a,400 W\n"
    (tmp_path / "p.csv").write_text(text + "2026/03/01 12:00:00.000,1,GPU-b,90 W\n")
    assert read_power(tmp_path / "p.csv").names == {"0": "0", "1": "1", "GPU-a": "0", "GPU-b": "1"}


def test_what_a_log_does_not_have_is_left_out_and_told(tmp_path, usual, log):
    """A field that the board lacks beside one that it has; a header in the middle; a last line that was cut."""
    lines = log.replace("power.draw.instant [W]", "power.draw.instant [W], power.draw [W]").splitlines()
    lines = [lines[0], *(re.sub(r", (\d), ", r", \1, [N/A], ", line) for line in lines[1:])]
    (_, row), notes = one_run(tmp_path, usual, "\n".join(lines) + "\n")
    assert row["power_w"] == pytest.approx(1200) and len(notes) == 1
    half = len(lines) // 2
    text = "\n".join([*lines[:half], lines[0], *lines[half:]])[:-30]
    (_, row), notes = one_run(tmp_path, usual, text)
    assert row["power_w"] == pytest.approx(1200)
    assert any("the header again, left out" in note for note in notes)
    assert any("its last line is cut off, and left out" in note for note in notes)
    gone = log.replace("300.00 W", "[N/A]", 4)
    (_, row), notes = one_run(tmp_path, usual, gone)
    assert row["power_w"] == pytest.approx(1200) and any("4 rows of" in note for note in notes)


def test_results_appended_to_one_file_are_all_read(tmp_path, usual):
    (tmp_path / "all.json").write_text(json.dumps(usual) + "\n" + json.dumps(usual | {"completed": 199}))
    assert [result.content["completed"] for result in read_results(tmp_path / "all.json")] == [200, 199]


@pytest.mark.parametrize(
    "changed,run,said",
    [
        ({"p99_itl_ms": None}, {}, "p99_itl_ms missing; add --percentile-metrics ttft,tpot,itl"),
        ({"failed": 20}, {}, "20 of 220 requests failed"),
        ({"tp": None}, {}, "tp missing; give it to the run, or to the benchmark: --metadata tp=..."),
        ({"tp": "2"}, {}, "power of 4 GPUs (0, 1, 2, 3), but tp 2; name the instance's own: gpus: [0, 1]"),
        ({}, {"gpus": [0, 7]}, "no GPU 7; it has 0, 1, 2, 3"),
        ({}, {"core_mhz": 1200}, "the SM clock was 1400 MHz in p.csv, above the 1200 named"),
        ({"date": "20260301-140000"}, {}, "has 0 samples of GPU 0 while it ran; log the whole run"),
        ({"date": "yesterday"}, {}, "date 'yesterday'; expected such as"),
        ({"input_lens": [10, 900], "output_lens": [10, 10]}, {}, "requests of classes SS, MS; benchmark each class"),
        ({}, {"clock": 1}, "unknown key 'clock'; allowed: core_mhz, ends, gpus, idle_power_w, power, result, tp"),
        ({}, {"core_mhz": float("inf")}, "core_mhz inf; give it to the run"),
        ({"completed": 10**400}, {}, "completed 1000"),
        ({"input_lens": ["a"], "output_lens": [1]}, {}, "input_lens and output_lens are not two numbers a request"),
        ({"input_lens": [1, 2], "output_lens": [1]}, {}, "input_lens and output_lens are not two numbers a request"),
        ({}, {"about": {"utc_offset_h": "Paris"}}, "utc_offset_h Paris; expected hours"),
        ({}, {"result": "no*.json"}, "result no*.json: no such file"),
        ({}, {"idle_power_w": -1}, "idle_power_w -1; expected watts"),
    ],
)
def test_what_cannot_be_imported_is_one_line(tmp_path, usual, log, changed, run, said):
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        one_run(tmp_path, usual | changed, log, **run)
    assert "\n" not in str(refused.value)


def test_a_cut_off_result_or_another_log_is_one_line(tmp_path, usual, log):
    with pytest.raises(InputError, match=r"r.json: result 1: not JSON .*cut off\?"):
        one_run(tmp_path, json.dumps(usual)[:100], log)
    with pytest.raises(
        InputError, match=r"p.csv, line 1: no columns timestamp and power.draw.instant \[W\]; log with nvidia-smi"
    ):
        one_run(tmp_path, usual, "a,b\n1,2\n")
    for wrong in ("nan", "inf", "-5.00"):
        with pytest.raises(InputError, match=rf"p.csv, line 2, column power.draw.instant \[W\]: ' ?{wrong}"):
            one_run(tmp_path, usual, re.sub(r"[\d.]+ W,", f"{wrong} W,", log, count=1))
    for wrong, said in (
        ("390000.00", "390 kW, no power of a GPU; is it in mW?"),
        ("0.39", "390 mW, no power of a GPU"),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            one_run(tmp_path, usual, re.sub(r"[\d.]+ W,", f"{wrong} W,", log))
    with pytest.raises(InputError, match=r"line 2, column timestamp: 'noon'; expected a time such as 2026"):
        one_run(tmp_path, usual, re.sub(r"^20\S+ \S+,", "noon,", log, flags=re.MULTILINE))
    with pytest.raises(InputError, match=r"column timestamp: '1772\S+' is no Unix time in s; .* likely in ms"):
        one_run(tmp_path, usual, zeus_log(1772000000123, 1772000040123, 1200))
    with pytest.raises(InputError, match=r"r.json: result 1: not JSON"):
        one_run(tmp_path, "[" * 100_000, log)
    (tmp_path / "list.yaml").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"list.yaml: not YAML"):
        import_runs(tmp_path / "list.yaml")
