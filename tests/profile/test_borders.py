"""What a table may say at both sides of each border, and rows pooled by hand."""

import hashlib
import json
import statistics
from dataclasses import dataclass
from types import SimpleNamespace

import pyarrow as pa
import pytest

from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.request import PointRequest
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.profile import aggregate, step
from kernel_dvfs.profile.records import Records, changed
from kernel_dvfs.profile.table import import_table
from kernel_dvfs_clocks.clocks import Pair
from kernel_dvfs_clocks.errors import InputError

# --- points of a GPU, pooled ------------------------------------------------------------------------------------------

PAIR, OTHER, GELU = Pair(1470, 5001), Pair(1260, 5001), ("kernel", "forward_gelu")


def point(time_us, energy_mj, session="a", verdict="ok", core_mhz=1470.0, sd=(None, None), n=1):
    """A point as a record has it, less what pooling does not read."""
    summary = {"time_us": time_us, "energy_mj": energy_mj, "time_sd_us": sd[0], "energy_sd_mj": sd[1], "n": n}
    reached = {"core_mhz": core_mhz, "mem_mhz": 5001.0}
    return {"summary": summary, "reached": reached, "verdict": verdict, "session": session}


def pooled(setup, found):
    """{column: values} of points {(pair, repeat): point, or None where it was left out} of one kernel."""
    pairs = dict.fromkeys(pair for pair, _ in found)
    asked = [PointRequest(*GELU, *pair, tuple(each for own, each in found if own == pair)) for pair in pairs]
    return aggregate.columns(setup, asked, 10, lambda target: lambda *where: found[where])


def test_a_row_pools_its_repeats_alike_and_its_errors_over_sessions(setup_of):
    """Three of one session and one of another, at two pairs; in s and J, from us and mJ."""
    times = {PAIR: (412.0, 415.5, 409.1, 431.7), OTHER: (502.3, 500.2, 507.7, 489.0)}
    energies = {PAIR: (98.1, 97.5, 99.9, 91.3), OTHER: (88.0, 87.1, 86.9, 91.2)}
    found = {
        (pair, repeat): point(times[pair][repeat], energies[pair][repeat], "aaab"[repeat], core_mhz=1400 + repeat)
        for pair in times
        for repeat in range(4)
    }
    found |= {(PAIR, 4): None, (OTHER, 4): point(1.0, 1.0, verdict="disturbed")}
    rows = pooled(setup_of(), found)
    assert (rows["n"], rows["verdict"], rows["reached_core_mhz"]) == ([4, 4], ["ok", "ok"], [1401.5, 1401.5])
    assert rows["is_baseline"] == [False, False] and rows["core_mhz"] == [1470.0, 1260.0]
    for column, values, unit in (("time", times, 1e-6), ("energy", energies, 1e-3)):
        name = {"time": "_s", "energy": "_j"}[column]
        cells = list(values.values())
        assert rows[column + name] == pytest.approx([unit * statistics.mean(own) for own in cells])
        assert rows[f"{column}_sd{name}"] == pytest.approx([unit * statistics.stdev(own) for own in cells])
        within = [statistics.pvariance(own[:3]) * 3 for own in cells]
        mean = [number for own in cells for number in (statistics.mean(own[:3]), own[3])]
        expected = aggregate.standard_errors(
            [0] * 4, [0, 0, 1, 1], [3, 1] * 2, mean, [each for own in within for each in (own, 0.0)]
        )
        assert rows[f"{column}_se{name}"] == pytest.approx(unit * expected)


def test_one_measurement_has_the_error_of_its_windows_and_no_error_of_its_mean(setup_of):
    alone = pooled(setup_of(), {(PAIR, 0): point(412.0, 98.1, sd=(3.0, 0.6), n=4)})
    assert (alone["time_sd_s"], alone["energy_sd_j"]) == (pytest.approx([1.5e-6]), pytest.approx([3e-4]))
    assert alone["time_se_s"] == alone["energy_se_j"] == [None]
    assert pooled(setup_of(), {(PAIR, 0): point(412.0, 98.1)})["time_sd_s"] == [None]
    nothing = pooled(setup_of(), {(PAIR, 0): None})
    assert nothing["time_s"] == nothing["time_se_s"] == []


@pytest.fixture
def folder(setup_of, tmp_path):
    """(setup of one kernel, records of two points of it)."""
    made = setup_of()
    setup = Setup(made.digest, made.gpu, made.workload, {"kernel": {GELU[1]: made.targets["kernel"][GELU[1]]}}, made[4])
    bench = Bench(setup, MeasurementTarget(*GELU))
    for repeat in (0, 1):
        path = str(tmp_path / f"kernel/forward_gelu/1470-5001/r{repeat}.json")
        record.write_point(path, setup, bench, bench.target, "sweep", repeat, bench.point(PAIR, repeat=repeat))
    return setup, tmp_path


def rewritten(path, **changes):
    """A record of its own that differs in fields {group: {name: value}}."""
    content = json.loads(path.read_text())
    del content["sha256"]
    for group, values in changes.items():
        content[group] |= values
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("damaged", ["{", "[]", '{"run": {"setup": 7}}'])
def test_a_record_that_is_damaged_is_named_and_one_of_another_setup_too(folder, damaged):
    setup, path = folder
    name = path / "kernel/forward_gelu/1470-5001/r0.json"
    assert Records(setup, str(path)).points(MeasurementTarget(*GELU))(PAIR, 0)["session"] is None
    name.write_text(damaged)
    with pytest.raises(InputError, match=r"r0\.json"):
        Records(setup, str(path)).points(MeasurementTarget(*GELU))(PAIR, 0)
    rewritten(path / "kernel/forward_gelu/1470-5001/r1.json", run={"setup": "0" * 12})
    with pytest.raises(InputError, match=r"r1\.json: .*foreign"):
        Records(setup, str(path)).points(MeasurementTarget(*GELU))(PAIR, 1)


def test_what_is_gone_or_has_another_checksum_has_changed(folder):
    _, path = folder
    names = [f"kernel/forward_gelu/1470-5001/r{repeat}.json" for repeat in (0, 1)]
    read = {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in names}
    assert changed(str(path), read) == []
    rewritten(path / names[1], run={"setup": "0" * 12})
    assert changed(str(path), read) == [names[1]]
    (path / names[0]).unlink()
    assert changed(str(path), read) == names


def test_two_builds_are_not_pooled(folder):
    setup, path = folder
    target, files = (
        MeasurementTarget(*GELU),
        [path / f"kernel/forward_gelu/1470-5001/r{repeat}.json" for repeat in (0, 1)],
    )
    for file, build in zip(files, ("a" * 64, "b" * 64)):
        rewritten(file, device={"library_sha256": build})
    read = Records(setup, str(path)).points(target)
    assert read(PAIR, 0)["verdict"] == "ok"
    with pytest.raises(InputError, match="ran kernels of different builds"):
        read(PAIR, 1)


# --- tables of others -------------------------------------------------------------------------------------------------


def table(tmp_path, rows, head="kernel,core_mhz,mem_mhz,time_s,energy_j,is_auto", **more):
    path = tmp_path / "t.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return import_table(path, **more)


@pytest.mark.parametrize(
    ("core", "stated", "fits"),
    [
        ("60", None, True),
        ("59.9", None, False),
        ("50000", None, True),
        ("50001", None, False),
        # a clock in a unit that the user states may be any but none
        ("0.001", "mhz", True),
        ("0.00999", "ghz", True),
        ("1470", "mhz", True),
        ("1e-9", "khz", True),
        # nothing is left of it in MHz
        ("1e-320", "hz", False),
    ],
)
def test_a_clock_is_one_in_mhz_or_in_a_unit_that_is_stated(tmp_path, core, stated, fits):
    rows = ["k,,,2.0,300,1", f"k,{core},,2.2,280,0"]
    more = {"columns_in": {"core_mhz": stated}} if stated else {}
    if not fits:
        with pytest.raises(InputError, match="no clock in MHz"):
            table(tmp_path, rows, **more)
        return
    per = {"mhz": 1.0, "ghz": 1e-3, "khz": 1e3}.get(stated, 1.0)
    assert table(tmp_path, rows, **more).columns["core_mhz"] == [None, pytest.approx(float(core) / per)]


@pytest.mark.parametrize(
    ("energy", "stated", "fits"),
    [
        ("2.0", {}, True),
        ("1.99", {}, False),
        ("10000", {}, True),
        ("10001", {}, False),
        ("10001", {"time_s": "s"}, False),
        ("10001", {"energy_j": "j"}, False),
        ("10001", {"time_s": "s", "energy_j": "j"}, True),
    ],
)
def test_mean_power_is_a_boards_unless_both_units_are_stated(tmp_path, energy, stated, fits):
    rows = ["k,,,2.0,300,1", f"k,1470,,2.0,{energy},0"]
    if fits:
        read = table(tmp_path, rows, columns_in=stated)
        assert read.columns["energy_j"] == [300.0, float(energy)] and any(
            "units: time_s in s" in line for line in read.read
        )
    else:
        with pytest.raises(InputError, match="which no GPU draws"):
            table(tmp_path, rows, columns_in=stated)


def test_a_stated_unit_is_the_one_that_is_told_and_read(tmp_path):
    """Named in ms, stated in us; a clock named in MHz and stated in kHz."""
    rows = ["k,,,2000,0.3,1", "k,1470000,,2500,0.25,0"]
    read = table(
        tmp_path,
        rows,
        "kernel,core_mhz,mem_mhz,time_ms,energy_j,is_auto",
        columns_in={"time_ms": "us", "core_mhz": "khz"},
    )
    assert read.columns["time_s"] == pytest.approx([2e-3, 2.5e-3]) and read.columns["core_mhz"] == [None, 1470.0]
    (line,) = (each for each in read.read if each.startswith("units"))
    assert line == "units: time_ms in us, energy_j in J, core_mhz in kHz, mem_mhz in MHz; mean power 100 to 150 W"


def test_rows_of_one_setting_are_pooled_by_mean_and_sample_deviation(tmp_path):
    times, energies = (2.0, 2.3, 2.7), (300.0, 310.0, 350.0)
    rows = [f"k,,,{time},{energy},1" for time, energy in zip(times, energies)] + ["k,1470,,2.9,270,0"]
    read = table(tmp_path, rows)
    assert read.columns["time_s"] == pytest.approx([statistics.mean(times), 2.9])
    assert read.columns["energy_j"] == pytest.approx([statistics.mean(energies), 270])
    assert read.columns["time_sd_s"] == [pytest.approx(statistics.stdev(times)), None]
    assert read.columns["energy_sd_j"] == [pytest.approx(statistics.stdev(energies)), None]
    assert read.columns["n"] == [3, 1] and read.columns["is_baseline"] == [True, False]


@pytest.mark.parametrize(
    ("word", "auto"),
    [("0", False), ("1", True), ("0.0", False), ("1.0", True), ("false", False), ("TRUE", True), ("", False)],
)
def test_a_mark_says_whether_a_row_is_auto(tmp_path, word, auto):
    """The other row is marked the other way, and one of both is the baseline."""
    rows = [f"k,1980,,2.0,300,{word}", f"k,1470,,2.2,280,{int(not auto)}"]
    assert table(tmp_path, rows).columns["is_baseline"] == [auto, not auto]


def test_a_setting_is_the_reference_where_any_of_its_rows_is_marked_or_where_it_is_asked_for(tmp_path):
    head = "kernel,core_mhz,mem_mhz,time_s,energy_j,is_reference"
    rows = ["k,1980,,2.0,300,0", "k,1980,,2.1,310,1", "k,1470,,2.2,280,0"]
    marked, asked = table(tmp_path, rows, head), table(tmp_path, rows, head, reference="1470")
    assert (marked.columns["is_baseline"], marked.workload["reference"]) == ([True, False], "1980,auto")
    assert (asked.columns["is_baseline"], asked.workload["reference"]) == ([False, True], "1470,auto")
    with pytest.raises(InputError, match="no point at reference 1470,auto,power_cap_w=200"):
        table(tmp_path, rows, head, reference="1470,auto,power_cap_w=200")


@pytest.mark.parametrize(("energy", "said"), [("1.4", "700 mW"), ("1.1e4", "5.5 kW"), ("3e6", "1.5 MW")])
def test_a_power_that_is_no_boards_is_told_in_its_unit(tmp_path, energy, said):
    with pytest.raises(InputError, match=f"is a mean power of {said}, which no GPU draws"):
        table(tmp_path, ["k,,,2.0,300,1", f"k,1470,,2.0,{energy},0"])


def test_a_step_is_told_what_was_measured_of_it_in_us_mj_and_mhz(monkeypatch):
    @dataclass
    class Of:
        id: str
        auto_time_us: float = 0.0
        auto_energy_mj: float = 0.0
        auto_core_mhz: float = 0.0

    @dataclass
    class Step:
        checksum: str
        targets: tuple

    rows = [
        {
            "study": study,
            "target": "a",
            "time_s": 3e-4,
            "energy_j": 0.07,
            "reached_core_mhz": 1845.0,
            "is_baseline": base,
        }
        for study, base in (("kernel", True), ("kernel", False), ("pass", True))
    ]
    rows[1] |= {"time_s": 9.0, "energy_j": 9.0}
    rows[2] |= {"time_s": 8.0, "energy_j": 8.0}
    read = SimpleNamespace(table=pa.Table.from_pylist(rows), metadata={"workload": {"step": {"checksum": "c"}}})
    monkeypatch.setattr(step, "read", lambda _: Step("c", (Of("a"), Of("b"))))
    monkeypatch.setattr(step, "read_profile", lambda _: read)
    measured, unknown = step.measured_step("step.json", "profile.parquet").targets
    assert (measured.auto_time_us, measured.auto_energy_mj, measured.auto_core_mhz) == pytest.approx((300, 70, 1845))
    assert unknown == Of("b")
    monkeypatch.setattr(step, "read", lambda _: Step("another", ()))
    with pytest.raises(InputError, match=r"of c, step\.json is another"):
        step.measured_step("step.json", "profile.parquet")


def test_which_rows_are_the_baseline_is_told_where_only_some_kernels_have_auto(tmp_path):
    head = "kernel,core_mhz,mem_mhz,time_s,energy_j,is_reference"
    rows = ["k,,,2.0,300,0", "k,1470,,2.2,280,0", "l,1470,,2.0,300,1", "l,900,,2.5,270,0", "m,,,1.0,90,0"]
    (line,) = (each for each in table(tmp_path, rows, head).read if each.startswith("baseline"))
    assert line == (
        "baseline: the rows that lock no clock (auto) of 2 kernels, those marked is_reference of the others; "
        "2 settings, by kernel"
    )
