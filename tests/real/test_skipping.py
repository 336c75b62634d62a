"""Core clocks that the power cap is known not to deliver can be left out, each with its reason."""

import json
from types import SimpleNamespace

import pytest

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import BASELINE, Pair
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.request import sweep
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.profile import aggregate
from kernel_dvfs.report.measured_tables import omitted_pairs

GEMM = "forward_fc_gemm"


@pytest.fixture
def study(lab):
    """`study(pair, target, ...)` measures into the layout of a study; the file's content."""
    import yaml

    made = lab()

    def measure(pair, target=GEMM, skip_capped=True, repeat=0):
        (made.folder / "config.yaml").write_text(yaml.safe_dump(made.config | {"skip_capped": skip_capped}))
        path = made.folder / f"measurements/kernel/{target}/{pair.replace(',', '-')}/r{repeat}.json"
        words = ("measure", "--gpu", "nvml", "--target", target, "--clocks", pair, "--repeat", repeat, "-o", path)
        done = made.command(*words)
        assert done.returncode == 0, done.stderr
        return json.loads(path.read_text())

    measure.lab = made
    return measure


def test_a_higher_clock_than_one_that_the_cap_held_back_is_not_measured(study):
    held = study("1500,3201")
    assert held["verdict"] == "throttled"
    calls = int(study.lab.boards.get("calls"))
    left_out = study("1980,3201")
    assert left_out["schema"] == record.SKIPPED
    assert left_out["reason"] == f"the power cap held 1500-3201 at {held['reached']['core_mhz']:g} MHz already"
    assert int(study.lab.boards.get("calls")) < calls + 400, "the GPU was looked at, and measured nothing"
    table = omitted_pairs(SimpleNamespace(folder=study.lab.folder), [[210, 405, "folds"]], True)
    assert list(table.itertuples(index=False, name=None)) == [
        (210, 405, "folds", "all"),
        (1980, 3201, left_out["reason"], GEMM),
    ]


def test_what_the_cap_may_let_through_is_measured(study):
    study("1500,3201")
    assert study("1500,2201")["schema"] == record.POINT, "another memory clock may leave power for the core"
    assert study("900,3201")["schema"] == record.POINT, "a lower clock may be reached"
    assert study("auto,3201")["schema"] == record.POINT
    study("1500,3201", "forward_gelu")
    assert study("1980,3201", "forward_gelu")["schema"] == record.POINT, "this kernel was not held back"


def test_what_is_measured_again_is_never_left_out(study):
    study("1500,3201", repeat=2)
    assert study("1980,3201", repeat=2)["schema"] == record.POINT


def test_by_default_everything_is_measured(study):
    study("1500,3201", skip_capped=False)
    assert study("1980,3201", skip_capped=False)["verdict"] == "throttled"


def test_a_profile_has_no_row_where_nothing_was_measured(study):
    for pair in ("auto,auto", "1500,3201", "1980,3201"):
        study(pair)
    plan = (
        "from kernel_dvfs.plan.config import load\nfrom kernel_dvfs.plan.study import plan\n"
        "print(plan(load('config.yaml') | {'gpu': 'nvml'}, 'r').setup.write())"
    )
    whole = read(str(study.lab.folder / study.lab.python(plan).stdout.strip()))
    targets = {"kernel": {GEMM: whole.targets["kernel"][GEMM]}, "pass": {}}
    setup = type(whole)(whole.digest, whole.gpu, whole.workload, targets, whole.measurement)
    pairs, output = [BASELINE, Pair(1500, 3201), Pair(1980, 3201)], str(study.lab.folder / "p.parquet")
    requests = sweep(setup, pairs, 1)
    aggregate.from_records(setup, str(study.lab.folder / "measurements"), requests, 1, output)
    from kernel_dvfs.profile.store import read_profile

    assert read_profile(output).table["core_mhz"].to_pylist() == [None, 1500]
    path = study.lab.folder / f"measurements/kernel/{GEMM}/1980-3201/r0.json"
    for wrong in (
        {"reason": 7},
        {"request": {"core_mhz": 1500, "mem_mhz": 3201}},
        {"run": {"setup": "0", "repeat": 0}},
    ):
        path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
        with pytest.raises(InputError, match=r"1980-3201/r0\.json"):
            record.read_skipped(str(path), setup, Target("kernel", GEMM), Pair(1980, 3201))
