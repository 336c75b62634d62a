"""A trace of an iteration: joules a slice by hand, and opened by the readers that people have."""

import json
import math

import pytest

from kernel_dvfs.cli.main import main

# kernel, core MHz, time s, energy J: unequal, and no round microseconds
ROWS = [
    *(("a", 1500, 0.0011, 0.7), ("a", 1200, 0.0012345678, 0.5)),
    *(("b", 1500, 0.0003000004, 0.11), ("b", 1200, 0.00037, 0.1)),
]
CHOSEN = {"a": {"core_mhz": 1200, "mem_mhz": 5001}, "b": {"core_mhz": 1500, "mem_mhz": 5001}}


@pytest.fixture
def traced(tmp_path, monkeypatch):
    """`traced(*words)`: content of the trace of a profile of two kernels, launched b a b."""
    monkeypatch.chdir(tmp_path)
    table = ["kernel,core_mhz,mem_mhz,time_s,energy_j", *(f"{name},{core},5001,{s!r},{j}" for name, core, s, j in ROWS)]
    (tmp_path / "t.csv").write_text("\n".join(table) + "\n")
    assert main(["import", "t.csv", "-o", "p.parquet", "--reference", "highest"]) == 0
    assert main(["choose", "p.parquet", "-o", "s.json", "--slack", "50"]) == 0
    (tmp_path / "order.json").write_text(json.dumps(["b", "a", "b"]))

    def make(*words):
        assert main(["step", "trace", "p.parquet", "--order", "order.json", *words, "-o", "trace.json"]) == 0
        return json.loads((tmp_path / "trace.json").read_text())

    return make


def slices(content, process=0):
    return [event for event in content["traceEvents"] if event["ph"] == "X" and event["pid"] == process]


def test_each_launch_has_its_joules_and_follows_the_one_before(traced, capsys):
    content = traced()
    own = slices(content)
    assert [event["name"] for event in own] == ["b", "a", "b"]
    assert [event["args"]["energy_j"] for event in own] == [0.11, 0.7, 0.11]
    assert [event["dur"] for event in own] == [300.0, 1100.0, pytest.approx(300.001)]
    assert [event["ts"] for event in own] == [0.0, 300.0, 1400.0]
    assert own[1]["args"]["power_w"] == pytest.approx(0.7 / 0.0011) and own[1]["args"]["core_mhz"] == 1500
    curve = [event["args"]["power_w"] for event in content["traceEvents"] if event["ph"] == "C"]
    assert curve == [*(event["args"]["power_w"] for event in own), 0.0]
    assert "3 launches, 0.0017 s, 0.92 J" in capsys.readouterr().out


def test_a_schedule_stands_beside_the_baseline(traced, tmp_path):
    schedule = json.loads((tmp_path / "s.json").read_text())
    chosen = {name: own["core_mhz"] for name, own in schedule["targets"].items()}
    known = {(name, core): (s, j) for name, core, s, j in ROWS}
    own = slices(traced("--schedule", "s.json"), 1)
    for event in own:
        time_s, energy_j = known[event["name"], chosen[event["name"]]]
        assert event["args"]["energy_j"] == energy_j and event["dur"] == pytest.approx(1e6 * time_s, abs=2e-3)
        assert event["args"]["core_mhz"] == chosen[event["name"]]
    assert 1200 in chosen.values(), "else nothing is shown"


def test_a_schedule_of_another_profile_is_refused_in_a_line(traced, tmp_path, refused, capsys):
    (tmp_path / "u.csv").write_text("kernel,core_mhz,mem_mhz,time_s,energy_j\nc,1500,5001,1,300\nc,1200,5001,1.1,250\n")
    assert main(["import", "u.csv", "-o", "q.parquet", "--reference", "highest"]) == 0
    assert main(["choose", "q.parquet", "-o", "u.json", "--slack", "50"]) == 0
    capsys.readouterr()
    words = ["step", "trace", "p.parquet", "--schedule", "u.json", "-o", "trace.json"]
    assert "no clocks for a" in refused(*words) and not (tmp_path / "trace.json").exists()
    (tmp_path / "w.csv").write_text(
        "kernel,core_mhz,mem_mhz,time_s,energy_j\n"
        + "".join(f"{name},{core},5001,{s},{j}\n" for name in "ab" for core, s, j in ((1500, 1.0, 300), (900, 1.1, 90)))
    )
    assert main(["import", "w.csv", "-o", "w.parquet", "--reference", "highest"]) == 0
    assert main(["choose", "w.parquet", "-o", "w.json", "--slack", "50"]) == 0
    capsys.readouterr()
    assert "a at 900.0-5001.0 is not in the profile" in refused(*words[:4], "w.json", *words[5:])


def test_torchs_own_reader_opens_it(traced, tmp_path):
    """The reader behind torch's TensorBoard plugin."""
    data = pytest.importorskip("torch_tb_profiler.profiler.data", reason="pip install torch-tb-profiler opens it")
    traced()
    run = data.RunProfileData.parse("worker", 0, str(tmp_path / "trace.json"), str(tmp_path))
    run.process()
    assert run.has_kernel
    found = run.kernel_stat[["count", "sum"]].to_dict("index")
    assert {name: (own["count"], own["sum"]) for name, own in found.items()} == {
        "a": (1, pytest.approx(1100)),
        "b": (2, pytest.approx(600, abs=0.01)),
    }


def test_holistic_trace_analysis_opens_it(traced, tmp_path):
    analysis = pytest.importorskip("hta.trace_analysis", reason="pip install HolisticTraceAnalysis opens it")
    content = traced()
    found = analysis.TraceAnalysis(trace_files={0: "trace.json"}, trace_dir=str(tmp_path))
    _, kernels = found.get_gpu_kernel_breakdown(visualize=False)
    sums = dict(zip(kernels["name"], kernels["sum (us)"]))
    for name in "ab":
        expected = math.fsum(event["dur"] for event in slices(content) if event["name"] == name)
        assert sums[name] == pytest.approx(expected, abs=2), "it takes whole us"
