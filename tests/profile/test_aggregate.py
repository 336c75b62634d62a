"""Records pooled into a profile: the same numbers as a sweep in one process, in s and J, repeats weighted alike."""

import hashlib
import json
import statistics

import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.campaign import Bench, of_repeat
from kernel_dvfs.measurement.request import PointRequest, sweep
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.profile import aggregate
from kernel_dvfs.profile.records import point_of
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair, label
from kernel_dvfs_clocks.errors import InputError

PAIRS = [BASELINE, Pair(1470, 5001), Pair(1470, AUTO)]


@pytest.fixture(scope="module")
def setup(setup_of):
    """Three kernels and a pass of them, so that a sweep is quick."""
    setup = setup_of()
    names = ("forward_gelu", "forward_fc_gemm", "backward_fcproj_bias_reduce")
    kernels = {name: setup.targets["kernel"][name] for name in names}
    targets = {"kernel": kernels, "pass": {"forward": [["forward_gelu", 24]]}}
    return Setup(setup.digest, setup.gpu, setup.workload, targets, setup.measurement)


@pytest.fixture
def records(setup, tmp_path):
    for study, names in setup.targets.items():
        for name in names:
            bench = Bench(setup, MeasurementTarget(study, name))
            for pair in PAIRS:
                for repeat in range(3 if pair == BASELINE else 1):
                    path = tmp_path / f"measurements/{study}/{name}/{label(pair)}/r{repeat}.json"
                    campaign = of_repeat(pair, repeat, 3)
                    point = bench.point(pair, campaign=campaign, repeat=repeat)
                    record.write_point(str(path), setup, bench, bench.target, campaign, repeat, point)
    return tmp_path / "measurements"


def rows(path):
    return read_profile(path).table.to_pylist()


def test_records_and_a_sweep_in_one_process_give_the_same_profile(setup, records, tmp_path):
    aggregate.from_records(setup, str(records), sweep(setup, PAIRS, 3), 3, str(tmp_path / "a.parquet"))
    aggregate.from_bench(setup, PAIRS, 3, str(tmp_path / "b.parquet"))
    assert rows(tmp_path / "a.parquet") == rows(tmp_path / "b.parquet")
    assert len(rows(tmp_path / "a.parquet")) == 4 * len(PAIRS)


def test_repeats_are_pooled_and_counted_in_s_and_j(setup, records, tmp_path):
    aggregate.from_records(setup, str(records), sweep(setup, PAIRS, 3), 3, str(tmp_path / "p.parquet"))
    row = next(row for row in rows(tmp_path / "p.parquet") if row["target"] == "forward_gelu" and row["is_baseline"])
    target = MeasurementTarget("kernel", "forward_gelu")
    read = [
        record.read_point(str(records / f"kernel/forward_gelu/auto-auto/r{k}.json"), setup, target, BASELINE)
        for k in range(3)
    ]
    times = [each["summary"]["time_us"] * 1e-6 for each in read]
    assert row["n"] == 3 and row["core_mhz"] is None and row["mem_mhz"] is None
    assert row["time_s"] == pytest.approx(statistics.mean(times))
    assert row["time_sd_s"] == pytest.approx(statistics.stdev(times))
    assert row["energy_j"] == pytest.approx(statistics.mean(each["summary"]["energy_mj"] * 1e-3 for each in read))
    assert row["launches_per_iteration"] == 24


def test_as_published_is_the_first_measurement_of_each_point_in_a_profile_of_its_own(setup, records, tmp_path):
    both = str(tmp_path / "p.parquet"), str(tmp_path / "first.parquet")
    aggregate.from_records(setup, str(records), sweep(setup, PAIRS, 3), 3, *both)
    pooled, first = map(rows, both)
    assert [row["n"] for row in pooled] == [3, 1, 1] * 4 and {row["n"] for row in first} == {1}
    target = MeasurementTarget("kernel", "forward_gelu")
    own = record.read_point(str(records / "kernel/forward_gelu/auto-auto/r0.json"), setup, target, BASELINE)
    row = next(row for row in first if row["target"] == "forward_gelu" and row["is_baseline"])
    assert row["time_s"] == pytest.approx(1e-6 * own["summary"]["time_us"]) and row["time_se_s"] is None
    aggregate.from_records(setup, str(records), sweep(setup, PAIRS, 3), 3, "", str(tmp_path / "alone.parquet"))
    assert (tmp_path / "alone.parquet").read_bytes() == (tmp_path / "first.parquet").read_bytes()


@pytest.fixture
def visited(setup, tmp_path):
    """A study by clock that has read one visit and has two rows."""
    path = tmp_path / "visit/s0/0-auto-auto.json"
    path.parent.mkdir(parents=True)
    path.write_text("what it read\n")
    row = {"study": "kernel", "target": "forward_gelu", "launches_per_iteration": 24, "replicate_group": None}
    row |= {"core_mhz": None, "mem_mhz": None, "reached_core_mhz": 1913.5, "reached_mem_mhz": 9251.0, "n": 3}
    row |= {"time_s": 8.5e-4, "time_sd_s": 3e-7, "time_se_s": 2e-7, "verdict": "ok", "is_baseline": True}
    row |= {"energy_j": 0.25, "energy_sd_j": 7e-4, "energy_se_j": 4e-4}
    other = row | {"core_mhz": 1485.0, "mem_mhz": 5001.0, "time_s": 9.5e-4, "energy_j": 0.1875, "is_baseline": False}
    columns = {name: [row[name], other[name]] for name in row}
    read = {"visit/s0/0-auto-auto.json": hashlib.sha256(path.read_bytes()).hexdigest()}
    return (read, columns), path


def test_the_profile_of_a_study_by_clock_has_its_rows(setup, visited, tmp_path):
    found, _ = visited
    columns = found[1]
    aggregate.from_visits(setup, str(tmp_path), *found, str(tmp_path / "p.parquet"))
    read = rows(tmp_path / "p.parquet")
    assert [{name: row[name] for name in columns} for row in read] == [
        dict(zip(columns, values)) for values in zip(*columns.values())
    ]
    metadata = read_profile(tmp_path / "p.parquet").metadata
    assert metadata["workload"]["setup"] == setup.digest and metadata["gpu"]["slug"] == "sim-rtx-3080-ti"


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_text("something else\n")])
def test_a_study_by_clock_cannot_outlive_a_visit_that_it_read(setup, visited, tmp_path, change):
    found, path = visited
    change(path)
    with pytest.raises(InputError, match=r"0-auto-auto\.json: is gone or was changed since .*; run snakemake again"):
        aggregate.from_visits(setup, str(tmp_path), *found, str(tmp_path / "p.parquet"))
    assert not (tmp_path / "p.parquet").exists()


def test_a_profile_says_what_it_is_of(setup, records, tmp_path):
    aggregate.from_records(setup, str(records), sweep(setup, PAIRS, 3), 3, str(tmp_path / "p.parquet"))
    metadata = read_profile(tmp_path / "p.parquet").metadata
    assert metadata["gpu"] == {"kind": "simulated", "name": "RTX 3080 Ti", "slug": "sim-rtx-3080-ti"}
    assert metadata["workload"]["name"] == "gpt3-xl-b40-tp1" and metadata["workload"]["setup"] == setup.digest
    assert metadata["workload"]["kernels"]["forward_gelu"]["row"] == 12


def test_a_missing_record_is_named_and_no_profile_is_written(setup, records, tmp_path):
    (records / "kernel/forward_gelu/1470-5001/r0.json").unlink()
    with pytest.raises(InputError, match=r"forward_gelu/1470-5001/r0\.json: missing"):
        aggregate.from_records(setup, str(records), sweep(setup, PAIRS, 3), 3, str(tmp_path / "p.parquet"))
    assert not (tmp_path / "p.parquet").exists()


def test_records_of_one_kernel_that_ran_different_algorithms_are_not_compared(setup, records, tmp_path):
    for name, instance in (("auto-auto/r0", "cublaslt algorithm=66"), ("1470-5001/r0", "cublaslt algorithm=67")):
        path = records / f"kernel/forward_fc_gemm/{name}.json"
        content = json.loads(path.read_text())
        content["kernel"]["instance"] = instance
        del content["sha256"]  # as a record of its own, not an edited one
        path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"kernel/forward_fc_gemm: .* ran .*, but .* ran .*; delete the records"):
        aggregate.from_records(setup, str(records), sweep(setup, PAIRS, 3), 3, str(tmp_path / "p.parquet"))
    assert not (tmp_path / "p.parquet").exists()


def test_the_import_command_prints_notices_and_writes_a_profile(tmp_path, capsys):
    table = tmp_path / "mine.csv"
    table.write_text(
        "gpu,kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto,colour\nX,k,,,1,100,1,a\nX,k,1000,5000,1.1,80,0,b\n"
    )
    assert main(["import", str(table), "-o", str(tmp_path / "p.parquet")]) == 0
    assert "colour" in capsys.readouterr().err
    assert [row["energy_j"] for row in rows(tmp_path / "p.parquet")] == pytest.approx([0.1, 0.08])
    schedule = tmp_path / "s.json"
    arguments = ["choose", str(tmp_path / "p.parquet"), "--scope", "global", "--objective", "waste", "--slack", "10"]
    assert main([*arguments, "-o", str(schedule)]) == 0
    chosen = json.loads(schedule.read_text())
    assert chosen["targets"] == {"k": {"core_mhz": 1000, "mem_mhz": 5000}}
    assert chosen["energy_change_percent"] == pytest.approx(-20) and chosen["status"] == "optimal"


@pytest.mark.parametrize(
    ("verdicts", "first"), [(("ok", "ok"), 0), (("disturbed", "ok"), 1), (("disturbed", "disturbed"), 0)]
)
def test_as_published_the_first_usable_measurement_of_a_point_stands_alone(setup_of, verdicts, first):
    bench = Bench(setup_of(), MeasurementTarget("kernel", "forward_gelu"))
    points = [
        point_of(bench.point(BASELINE, repeat=repeat)) | {"verdict": each} for repeat, each in enumerate(verdicts)
    ]
    assert points[0]["summary"]["time_us"] != points[1]["summary"]["time_us"]
    asked = [PointRequest("kernel", "forward_gelu", *BASELINE, (0, 1))]
    row = aggregate.columns(bench.setup, asked, 2, lambda target: lambda pair, repeat: points[repeat], is_first=True)
    assert (row["n"], row["verdict"]) == ([1], [verdicts[first]])
    assert row["time_s"] == pytest.approx([1e-6 * points[first]["summary"]["time_us"]], rel=1e-12)


@pytest.mark.parametrize(
    ("verdicts", "n", "verdict"), [(("ok", "disturbed"), 1, "ok"), (("disturbed",) * 2, 2, "disturbed")]
)
def test_a_disturbed_repeat_is_left_out_unless_there_is_no_other(setup_of, verdicts, n, verdict):
    bench = Bench(setup_of(), MeasurementTarget("kernel", "forward_gelu"))
    points = [
        point_of(bench.point(BASELINE, repeat=repeat)) | {"verdict": each} for repeat, each in enumerate(verdicts)
    ]
    asked = [PointRequest("kernel", "forward_gelu", *BASELINE, (0, 1))]
    row = aggregate.columns(bench.setup, asked, 10, lambda target: lambda pair, repeat: points[repeat])
    assert (row["n"], row["verdict"]) == ([n], [verdict])
    if n == 1:
        assert row["time_s"] == pytest.approx([1e-6 * points[0]["summary"]["time_us"]])
