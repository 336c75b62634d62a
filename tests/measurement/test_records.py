"""Records: complete or absent; truncated and foreign ones are refused by name."""

import json

import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.consistency import without_windows
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError

TARGET = MeasurementTarget("kernel", "forward_gelu")
PAIR = Pair(1470, 9251)


@pytest.fixture
def path(setup, tmp_path):
    path = tmp_path / "measurements/kernel/forward_gelu/1470-9251/r0.json"
    bench = Bench(setup, TARGET)
    record.write_point(str(path), setup, bench, TARGET, "sweep", 0, bench.point(PAIR))
    return path


def test_a_record_reads_back_and_is_plain_json(setup, path):
    content = record.read_point(str(path), setup, TARGET, PAIR)
    assert content == json.loads(path.read_text())
    assert content["device"]["name"] == "RTX 3080 Ti" and content["device"]["kind"] == "simulated"
    assert list(path.parent.iterdir()) == [path], "no temporary file is left"


def test_a_record_of_whatever_setup_is_read(setup, path):
    assert record.read_any(path) == record.read_point(str(path), setup, TARGET, PAIR)


@pytest.mark.parametrize(
    "text", ['{"run": ', "[]", '{"schema": "kernel-dvfs/point/1"}', '{"schema": "kernel-dvfs/visit/1"}']
)
def test_a_damaged_record_of_whatever_setup_is_refused_in_one_line(path, text):
    path.write_text(text)
    with pytest.raises(InputError, match=rf"record {path}: .*; delete it"):
        record.read_any(path)


def test_a_truncated_record_is_refused_by_name_with_the_remedy(setup, path):
    path.write_text(path.read_text()[:-40])
    with pytest.raises(InputError, match="delete") as refused:
        record.read_point(str(path), setup, TARGET, PAIR)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [(("run", "setup"), "0" * 12), (("kernel", "name"), "forward_fc_gemm"), (("request", "core_mhz"), 1260)],
)
def test_a_foreign_record_is_refused_by_name(setup, path, field, value):
    content = json.loads(path.read_text())
    content[field[0]][field[1]] = value
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="foreign") as refused:
        record.read_point(str(path), setup, TARGET, PAIR)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "other"}', "null", '{"a": 1} {"b": 2}'])
def test_what_is_no_record_is_refused(setup, path, text):
    path.write_text(text)
    with pytest.raises(InputError, match=r"r0\.json"):
        record.read_point(str(path), setup, TARGET, PAIR)


@pytest.mark.parametrize("value", [0, -1, None, "fast", float("inf")])
def test_a_record_without_a_positive_time_is_refused(setup, path, value):
    content = json.loads(path.read_text())
    content["summary"]["time_us"] = value
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"time_us|Infinity is no number"):
        record.read_point(str(path), setup, TARGET, PAIR)


def test_bad_records_are_found_and_deleted_on_request(setup, setup_of, path, capsys, tmp_path):
    from kernel_dvfs.measurement.setup import store

    good = path.parent.parent / "auto-auto/r0.json"
    bench = Bench(setup, TARGET)
    record.write_point(str(good), setup, bench, TARGET, "sweep", 0, bench.point(BASELINE))
    path.write_text("{")
    stored = store(str(tmp_path / "setup"), setup.gpu, setup.workload, setup.targets, setup.measurement)
    folder = str(tmp_path / "measurements")
    assert main(["measure", "records", folder, "--gpu", stored]) == 2
    assert path.exists() and str(path) in capsys.readouterr().err
    assert main(["measure", "records", folder, "--gpu", stored, "--delete-bad"]) == 0
    assert not path.exists() and good.exists()


def test_the_measure_command_writes_the_same_bytes_twice(tmp_path, root):
    for name in ("a", "b"):
        arguments = [
            "measure",
            "--gpu",
            "rtx_3080_ti",
            "--config",
            str(root / "config.yaml"),
            "--target",
            "forward_gelu",
        ]
        assert main([*arguments, "--clocks", "1470,auto", "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_error_is_logged_as_well_where_a_log_is_named(tmp_path, capsys):
    log = tmp_path / "logs" / "job.log"
    arguments = ["measure", "--gpu", "missing.json", "--target", "forward_gelu", "--clocks", "1470,auto"]
    assert main([*arguments, "--log", str(log), "-o", str(tmp_path / "r0.json")]) == 2
    assert log.read_text().startswith("error: setup missing.json: ") and log.read_text().count("\n") == 1
    assert capsys.readouterr().err == ""


def test_a_comparison_that_a_reader_would_refuse_is_not_written(setup, tmp_path):
    bench, path = Bench(setup, TARGET), tmp_path / "repeat-0.json"
    comparison = bench.compare(PAIR, 0)
    comparison["points"][2]["summary"]["energy_mj"] *= 1e3
    with pytest.raises(InputError, match=r"not written: comparisons\[0\]\.points\[2\]\.summary\..* again"):
        record.write_comparison(str(path), setup, bench.device, "s.json", [comparison])
    assert not list(tmp_path.iterdir())


def test_a_comparison_of_differences_is_bounded_by_no_limit_of_the_board(setup, tmp_path):
    """A difference multiplies the noise of its windows: one above the limit is written, and read."""
    bench, path = Bench(setup, TARGET), str(tmp_path / "repeat-0.json")
    point = bench.point(PAIR)
    for name in ("energy_mj", "power_mw"):
        point["summary"][name] *= 20
    with pytest.raises(InputError, match="no power of this GPU"):
        write(path, setup, bench, without_windows(point))
    windows = [window | {"with_beginning": {}, "beginning": {}} for window in point["windows"]]
    write(path, setup, bench, without_windows(point | {"windows": windows}))
    assert len(record.read_comparison(path)[1]) == 1


def write(path, setup, bench, point):
    comparisons = [{"target": TARGET.name, "repeat": 0, "session": "s", "points": [point] * 4}]
    record.write_comparison(path, setup, bench.device, "s.json", comparisons)


def test_what_a_reader_would_refuse_is_not_written(setup, tmp_path):
    bench = Bench(setup, TARGET)
    point = bench.point(PAIR)
    for group in (*point["windows"], point["summary"]):
        group["energy_mj"] *= 1e3
    with pytest.raises(InputError, match=r"r0\.json: not written: summary\..*; measure the point again"):
        record.write_point(str(tmp_path / "r0.json"), setup, bench, TARGET, "sweep", 0, point)
    assert not list(tmp_path.iterdir())
