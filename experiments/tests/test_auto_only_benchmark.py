"""gpu_auto_only.py: a session at default clocks sets nothing, stops at its limit and goes on elsewhere."""

import csv
import json

import pytest


@pytest.fixture
def session(lab, root):
    """`session(made, *words)` runs the script beside fake boards; the finished process."""
    import yaml

    def run(made, *words, config=None):
        (made.folder / "config.yaml").write_text(yaml.safe_dump(made.config | (config or {})))
        script = str(root / "experiments/benchmarks/gpu_auto_only.py")
        arguments = [script, *map(str, words)]
        return made.python(
            f"import runpy, sys; sys.argv = {arguments}; runpy.run_path({script!r}, run_name='__main__')"
        )

    return run


def results(folder):
    with open(folder / "auto_only.csv", newline="") as file:
        return list(csv.DictReader(file)), json.loads((folder / "auto_only.json").read_text())


@pytest.mark.nightly
def test_all_rows_and_passes_are_measured_and_nothing_is_set(lab, session, root):
    made = lab()
    done = session(made, "-o", "out")
    assert done.returncode == 0, done.stderr
    rows, summary = results(made.folder / "out")
    assert len(rows) == 46 and {row["verdict"] for row in rows} == {"ok"}
    assert summary["targets"] == {"measured": 48, "of": 48}
    # the columns of the table that is committed, in its order
    with open(root / "experiments/results/auto_only_h200.csv") as file:
        known = file.readline().strip().split(",")
    assert list(rows[0])[: len(known)] == known
    forward = summary["passes"]["forward"]
    steps = json.loads(next(made.folder.glob("results/*/*/setup/*.json")).read_text())["targets"]["pass"]["forward"]
    alone = {row["kernel"]: float(row["time_us"]) for row in rows}
    expected = sum(count * alone[name] for name, count in steps)
    assert forward["sum_of_kernels"]["time_ms"] == pytest.approx(expected / 1000, rel=1e-6)
    assert abs(forward["difference_percent"]["time_ms"]) < 5
    gemms = [float(row["power_cap_share"]) for row in rows if row["kernel"] == "loss_logits_gemm"]
    assert gemms == [1.0] and summary["under_power_cap"] >= 10
    assert summary["counter_period_ms"]["median"] == pytest.approx(100, rel=0.03)
    assert summary["device"]["uuid"] == made.boards.uuid and "fake" in summary["device"]["name"]
    assert (made.folder / "out/devices.txt").read_text().startswith("0: Simulated H200 on a fake NVML")
    assert made.boards.get("sets") == "0" and not made.lease.exists(), "the measuring process has ended"
    imported = made.command("import", "out/auto_only.csv", "-o", "profile.parquet")
    assert imported.returncode == 0, imported.stderr


def test_a_session_stops_at_its_limit_and_goes_on_from_its_folder_on_another_gpu_of_the_model(lab, session):
    made = lab("h200,h200")
    made.boards.set(board=1, time="virtual")
    assert session(made, "-o", "first", "--only", "forward_gelu", "--gpu", "nvml:0").returncode == 0
    kept = json.loads((made.folder / "first/records.jsonl").read_text())
    done = session(made, "-o", "second", "--only", "gelu", "--gpu", "nvml:1", "--resume", "first", "--limit-s", "1")
    assert done.returncode == 0 and "1 of 3 targets" in done.stderr and "--resume second" in done.stderr
    done = session(made, "-o", "third", "--only", "gelu", "--gpu", "nvml:1", "--resume", "second")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (made.folder / "third/records.jsonl").read_text().splitlines()]
    assert lines[0] == kept and len({line["target"] for line in lines}) == 3
    _, summary = results(made.folder / "third")
    assert summary["gpus"] == [made.boards.uuid, made.boards.get("uuid", 1)]
    done = session(made, "-o", "other", "--gpu", "nvml:0", "--resume", "third", config={"window_s": 3})
    assert (
        done.returncode == 1
        and done.stderr == "error: --resume third: another protocol than now; measure it all anew\n"
    )
    done = session(made, "-o", "other", "--gpu", "nvml:0", "--resume", "nowhere")
    assert done.returncode == 1 and done.stderr.startswith("error: --resume nowhere: ")


def test_overhead_is_what_is_neither_window_nor_warm_up(lab, session):
    made = lab(time="real", period_ms=10, read_ms=0.4, jitter_ms=0)
    config = {"window_s": 0.4, "windows": 2, "warmup_s": 0.1}
    assert session(made, "-o", "out", "--only", "gelu", config=config).returncode == 0
    rows, summary = results(made.folder / "out")
    for row in rows:
        wall_s, overhead_s = float(row["wall_s"]), float(row["overhead_s"])
        measuring_s = sum(float(row[name]) for name in ("windows_s", "warm_up_s"))
        assert wall_s == pytest.approx(measuring_s + overhead_s, abs=2e-3)
        assert 0.8 <= float(row["windows_s"]) < 1.2 and 0.1 <= float(row["warm_up_s"]) < 3
        assert 0 < overhead_s < wall_s
    spent = summary["overhead"]["spent_s"]
    assert spent["wall_s"] == pytest.approx(sum(float(row["wall_s"]) for row in rows), abs=0.02)
    assert summary["overhead"]["percent"] == pytest.approx(100 * spent["overhead_s"] / spent["wall_s"], abs=0.2)
