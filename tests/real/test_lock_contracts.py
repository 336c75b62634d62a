"""Whether a lock at the highest clocks is what it seems, each way of locking by itself, down to the page's warning."""

import json
from collections import Counter

import pytest

from kernel_dvfs.measurement.campaign import lock_contracts
from kernel_dvfs.report import measured_tables
from kernel_dvfs.report.page.answer import cautions
from kernel_dvfs.report.page.provenance import Tally
from kernel_dvfs.report.results import Results

TARGETS = ["loss_dwte_gemm", "forward_attention_residual"]  # bound by the core, by memory
WAYS = {"core": "1980,auto", "mem": "auto,3201", "both": "1980,3201"}


@pytest.fixture(scope="module")
def locking(module_lab):
    """`locking(**knobs)`: rows of the table, as text, of a board."""

    def make_table(**knobs):
        lab = module_lab("h200", **knobs)
        done, _ = lab.measure(pair="auto,auto", target=TARGETS[0])  # writes the setup
        assert done.returncode == 0, done.stderr
        setup = lab.setup()
        folder = (lab.folder / setup).parents[1]
        for way, clocks in WAYS.items():
            for name in TARGETS:
                words = ("--gpu", setup, "--clocks", clocks, "--target", name, "--last", 2)
                output = folder / f"measurements/locked-{way}/{name}.json"
                done = lab.command("measure", "compare", *words, "-o", output)
                assert done.returncode == 0, done.stderr
        lab.stop()
        table = measured_tables.locking(Results(folder), TARGETS, list(WAYS), 1)
        return json.loads(table.to_json(orient="records"))

    return make_table


def warnings(rows):
    found = cautions({"kind": "nvml"}, None, Tally([], [], Counter(), {}, None, []), None, rows)
    return [each.text for each in found if each.title == "A lock changes something by itself"]


def test_a_board_whose_locks_change_nothing_is_as_auto(locking):
    rows = locking()
    assert [(row["way"], row["locked"]) for row in rows[::2]] == [
        ("core alone", "1980-auto"),
        ("memory alone", "auto-3201"),
        ("both", "1980-3201"),
    ]
    assert {row["verdict"] for row in rows} == {"as auto"}, json.dumps(rows)
    assert not warnings(rows)


def test_a_memory_lock_that_lowers_the_power_limit_is_found_and_told(locking):
    rows = locking(mem_lock_limit_mw=500000)
    differing = {(row["way"], row["id"]) for row in rows if row["verdict"] == "differs"}
    assert ("memory alone", TARGETS[0]) in differing and ("both", TARGETS[0]) in differing
    assert not any(way == "core alone" for way, _ in differing)
    slower = next(row for row in rows if row["way"] == "memory alone" and row["id"] == TARGETS[0])
    assert float(slower["time_change_percent"]) > 3 and float(slower["locked_core_mhz"]) < float(
        slower["auto_core_mhz"]
    )
    (said,) = warnings(rows)
    assert "memory alone " in said and f"({TARGETS[0]})" in said and "core alone" not in said


def test_without_a_memory_lock_there_is_one_way():
    listed = {"core_mhz": {"listed": {"877": [135, 1380]}}}
    assert lock_contracts(listed | {"mem_mhz": []}) == {"core": "1380,auto"}
    assert lock_contracts(listed | {"mem_mhz": [877]}) == {"core": "1380,auto", "mem": "auto,877", "both": "1380,877"}
