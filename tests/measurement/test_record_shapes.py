"""Whatever is wrong inside a record, the error is one line that names the file and the field."""

import json

import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.setup import store
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import Pair
from kernel_dvfs_clocks.errors import InputError

TARGET = MeasurementTarget("kernel", "forward_gelu")
PAIR = Pair(1470, 9251)


@pytest.fixture(scope="module")
def made(setup, tmp_path_factory):
    """(a point's record, a comparison's record), as text."""
    folder, bench = tmp_path_factory.mktemp("made"), Bench(setup, TARGET)
    record.write_point(str(folder / "p"), setup, bench, TARGET, "sweep", 0, bench.point(PAIR))
    record.write_comparison(str(folder / "c"), setup, bench.device, "s.json", [bench.compare(PAIR, 0)])
    return (folder / "p").read_text(), (folder / "c").read_text()


def changed(text, path, value):
    """The record with the field at `path` replaced, or removed for a value of KeyError."""
    content = json.loads(text)
    inner = content
    for step in path[:-1]:
        inner = inner[step]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(content)


@pytest.mark.parametrize("value", [None, [], 7.5, KeyError])
@pytest.mark.parametrize(
    "field",
    [
        *("run", "run.campaign", "run.repeat", "kernel", "request", "request.core_mhz", "reached", "reached.core_mhz"),
        *("reached.mem_mhz", "summary", "summary.n", "summary.energy_mj", "verdict", "reasons", "windows"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(setup, made, tmp_path, field, value):
    if (value == [] and field == "reasons") or (value == 7.5 and field.endswith(("_mhz", "_mj"))):
        return  # that is what it may be
    path = tmp_path / "r0.json"
    path.write_text(changed(made[0], field.split("."), value))
    with pytest.raises(InputError) as refused:
        record.read_point(str(path), setup, TARGET, PAIR)
    is_wrong = "is missing" if value is KeyError else f"is {value!r}, expected "
    assert str(refused.value).startswith(f"record {path}: {field} {is_wrong}")
    assert str(refused.value).endswith("finds all such files) and run snakemake again")


def test_a_field_that_no_record_has_is_refused(setup, made, tmp_path):
    path = tmp_path / "r0.json"
    path.write_text(changed(made[0], ["colour"], "red"))
    with pytest.raises(InputError, match=r"r0\.json: colour is no field of it; expected .*run.*sha256"):
        record.read_point(str(path), setup, TARGET, PAIR)


def test_an_unknown_verdict_is_refused(setup, made, tmp_path):
    path = tmp_path / "r0.json"
    path.write_text(changed(made[0], ["verdict"], "splendid"))
    with pytest.raises(InputError, match="'splendid', expected one of ok, throttled"):
        record.read_point(str(path), setup, TARGET, PAIR)


def test_a_record_copied_over_another_repeat_is_foreign(setup, made, tmp_path):
    (tmp_path / "r3.json").write_text(made[0])
    (tmp_path / "mine.json").write_text(made[0])
    with pytest.raises(InputError, match="its repeat is 0, expected 3"):
        record.read_point(str(tmp_path / "r3.json"), setup, TARGET, PAIR)
    with pytest.raises(InputError, match="its repeat is 0, expected 2"):
        record.read_point(str(tmp_path / "mine.json"), setup, TARGET, PAIR, repeat=2)
    assert record.read_point(str(tmp_path / "mine.json"), setup, TARGET, PAIR)["run"]["repeat"] == 0


def test_a_comparison_reads_back(setup, made, tmp_path):
    (tmp_path / "c.json").write_text(made[1])
    digest, comparisons = record.read_comparison(str(tmp_path / "c.json"))
    assert digest == setup.digest and comparisons == json.loads(made[1])["comparisons"]


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (["comparisons"], None, "comparisons is None"),
        (["comparisons"], [], "comparisons is"),
        (["comparisons"], [None], "comparisons[0]"),
        (["run"], None, "run"),
        (["run", "setup"], None, "run.setup"),
        (["comparisons", 0, "target"], None, "comparisons[0].target"),
        (["comparisons", 0, "repeat"], -1, "comparisons[0].repeat"),
        (["comparisons", 0, "points"], [], "comparisons[0].points"),
        (["comparisons", 0, "points", 3], None, "comparisons[0].points[3]"),
        (["comparisons", 0, "points", 3, "summary"], KeyError, "comparisons[0].points[3].summary"),
        (["comparisons", 0, "points", 1, "summary", "time_us"], "1", "comparisons[0].points[1].summary.time_us"),
        (["comparisons", 0, "points", 1, "reached", "core_mhz"], None, "comparisons[0].points[1].reached.core_mhz"),
    ],
)
def test_a_malformed_comparison_is_refused_by_file_and_field(made, tmp_path, path, value, named):
    file = tmp_path / "c.json"
    file.write_text(changed(made[1], path, value))
    with pytest.raises(InputError) as refused:
        record.read_comparison(str(file))
    assert str(file) in str(refused.value) and named in str(refused.value)


def test_the_remedy_is_a_command_that_finds_bad_comparisons_too(setup, made, tmp_path, capsys):
    stored = store(str(tmp_path / "setup"), setup.gpu, setup.workload, setup.targets, setup.measurement)
    files = {
        "measurements/kernel/forward_gelu/1470-9251/r0.json": (made[0], True),
        "measurements/validation/repeat-0.json": (made[1], True),
        "measurements/validation/repeat-3.json": (made[1], False),  # a copy
        "measurements/batch-20/forward_gelu.json": (made[1], True),
        "measurements/batch-20/forward_fc_gemm.json": (made[1], False),  # a copy
        "measurements/tp-2/forward_gelu.json": (changed(made[1], ["run", "setup"], "0" * 12), False),
        "variants/batch-20/fresh.json": (made[1], True),
        "variants/tp-2/fresh.json": ("{", False),
    }
    for name, (text, _) in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = ["measure", "records", str(tmp_path / "measurements"), "--gpu", stored]
    assert main(command) == 2
    said = capsys.readouterr()
    assert said.out == "8 records, 4 bad\n"
    assert all((str(tmp_path / name) in said.err) is not good for name, (_, good) in files.items())
    assert main([*command, "--delete-bad"]) == 0
    assert all((tmp_path / name).exists() is good for name, (_, good) in files.items())
    assert main(command) == 0
