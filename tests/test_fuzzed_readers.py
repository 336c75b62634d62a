"""Files from others are data: whatever is in them, their reader returns, or refuses them in one line.

What reads JSON, YAML or CSV is found in the code itself. Each such place has a whole file here, damaged thousands of
times (`--fuzz N`, `--fuzz-seed S`), or a reason why not: its input is our own, or is damaged elsewhere.
"""

import ast
import json
import random
import traceback
from pathlib import Path

import fake
import pytest
import yaml

from kernel_dvfs.choice import schedule_file
from kernel_dvfs.cli.main import main
from kernel_dvfs.measurement import latency_file
from kernel_dvfs.measurement.real.gemm_algorithms import GemmAlgorithms
from kernel_dvfs.native.load import read_build
from kernel_dvfs.plan import config as configuration
from kernel_dvfs.profile.table import import_to_profile
from kernel_dvfs.registry import kind_of
from kernel_dvfs.search import study_file
from kernel_dvfs.table_file import read_rows, write_rows
from kernel_dvfs.workload import step
from kernel_dvfs_clocks import power
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml import facts, lease
from kernel_dvfs_deploy.sequence.schedule import read_iteration, read_timing
from kernel_dvfs_pipeline.graph import read_graph
from kernel_dvfs_pipeline.stage_profile import read_stage_profile
from kernel_dvfs_pipeline.steps import make_study
from kernel_dvfs_pipeline.study import PipelineStudy, read_plan
from kernel_dvfs_serving.deployment import read_static
from kernel_dvfs_serving.trace import read_trace

ROOT = Path(__file__).resolve().parents[1]
# what turns text into data
PARSERS = {
    *(
        "kernel_dvfs_clocks.shape.read",
        "kernel_dvfs_clocks.shape.checked",
        "kernel_dvfs_clocks.files.read_json",
        "json.loads",
        "json.load",
    ),
    *(
        "kernel_dvfs_clocks.files.parse_json",
        "kernel_dvfs_clocks.files.parse_yaml",
        "yaml.safe_load",
        "yaml.load",
        "csv.reader",
        "kernel_dvfs.profile.raw.read_csv",
        "csv.DictReader",
        "pandas.read_csv",
    ),
}
# by place, the base below that it is reached from
READERS = {
    "kernel_dvfs.workload.step.read": "step",
    "kernel_dvfs.search.study_file.read": "study by clock",
    "kernel_dvfs_clocks.nvml.facts._read": "facts",
    "kernel_dvfs_clocks.nvml.facts.node_of": "node",
    "kernel_dvfs_clocks.nvml.lease.parse": "lease",
    "kernel_dvfs_clocks.power.PowerLimit._before_mw": "power limit",
    "kernel_dvfs.measurement.latency_file.read": "latency",
    "kernel_dvfs.measurement.latency_file.checked": "latency",
    "kernel_dvfs.measurement.real.gemm_algorithms.GemmAlgorithms.__init__": "algorithms",
    "kernel_dvfs.native.load.read_build": "build",
    "kernel_dvfs.plan.config.load": "configuration",
    "kernel_dvfs.plan.config._is_json": "configuration",
    "kernel_dvfs.profile.kernel_tuner._load": "kernel tuner",
    "kernel_dvfs.profile.raw.read_csv": "table",
    "kernel_dvfs.choice.schedule_file.read_schedule": "schedule",
    "kernel_dvfs.choice.schedule_file.schema_of": "schedule",
    "kernel_dvfs_deploy.sequence.schedule.read_iteration": "iteration",
    "kernel_dvfs_deploy.sequence.schedule.read_timing": "timing of an iteration",
    "kernel_dvfs.table_file.read_rows": "rows of a table",
    "kernel_dvfs_deploy.sequence.launches._order": "order",
    "kernel_dvfs_clocks.files.parse_json": "lease",
    "kernel_dvfs_clocks.files.parse_yaml": "configuration",
    "kernel_dvfs_clocks.shape.read": "step",
    "kernel_dvfs.registry.kind_of": "study",
    "kernel_dvfs_pipeline.graph.read_graph": "graph",
    "kernel_dvfs_pipeline.study.PipelineStudy.__init__": "study",
    "kernel_dvfs_pipeline.study.read_plan": "plan",
    "kernel_dvfs_pipeline.stage_profile.read_stage_profile": "stages",
    "kernel_dvfs.profile.table._read": "table",
    "kernel_dvfs_serving.trace.read_trace": "trace",
    "kernel_dvfs_serving.trace._json_lines": "trace of lines",
    "kernel_dvfs_serving.deployment.read_static": "static",
}
_RESULTS = "a table of our own results folder, which the report of a study reads back; other files are refused by name"
_PIPE = "what a process of our own says through a pipe or a socket that no other user reaches"
_MADE = "tests/readers/made_files.py makes it"
_SERVING = "tests/serving/test_serving_import.py and test_static_plan.py damage it"
OTHERS = {
    "kernel_dvfs_pipeline.following.read_played": "what read_plan has read",
    "kernel_dvfs.choice.schedule.profile_columns": "metadata of a profile: tests/profile/test_fuzzed_tables.py",
    "kernel_dvfs.profile.store.read_profile": "metadata of a profile: tests/profile/test_fuzzed_tables.py",
    "kernel_dvfs.cli.json_object": "an option of a command: tests/cli/test_fuzzed_commands.py",
    "kernel_dvfs.cli.output._paths": "an option of a command: tests/cli/test_fuzzed_commands.py",
    "kernel_dvfs.search.loop.run": "an option of a command: tests/cli/test_fuzzed_commands.py",
    "kernel_dvfs.plan.config._typed": "an option of a command: tests/plan/test_fuzzed_configurations.py",
    "kernel_dvfs_clocks.files.parse_shipped_yaml": "a file of this package",
    "kernel_dvfs.table_file.kept_rows": "the tables of the step that ships",
    "kernel_dvfs.report.inference.rows_of": "a table of this package; tests/report/test_inference.py damages it",
    "kernel_dvfs_clocks.files._opened": "a table under seal; tests/readers/test_seals.py damages it",
    **dict.fromkeys(
        (
            *("kernel_dvfs.cli.serve.run",),
            *(
                "kernel_dvfs_deploy.progress",
                "kernel_dvfs_clocks.holder.main",
            ),
            *("kernel_dvfs_clocks.broker._boards", "kernel_dvfs.measurement.real.allocation._answers"),
            *("kernel_dvfs.measurement.real.client._heard", "kernel_dvfs.measurement.real.client.ask"),
            *("kernel_dvfs.measurement.real.clock_probe.probe_apart", "kernel_dvfs_step.capturing"),
            *("kernel_dvfs.measurement.real.server.MeasuringServer._read", "kernel_dvfs_step.capturing._heard"),
            *("kernel_dvfs.measurement.real.allocation._known", "kernel_dvfs_hooks.reader.Reader._answer"),
        ),
        _PIPE,
    ),
    "kernel_dvfs_clocks.holder.Lines.request": "tests/real/test_broker.py",
    "kernel_dvfs_clocks.setters.broker._answer": "what root's broker says",
    "kernel_dvfs_clocks.setters.zeusd.offer": "tests/real/test_ways.py",
    **dict.fromkeys(
        (
            *(f"kernel_dvfs.measurement.record.{name}" for name in ("read_any", "read_comparison", "read_point")),
            "kernel_dvfs.measurement.setup._read",
        ),
        "tests/measurement/test_fuzzed_files.py",
    ),
    **dict.fromkeys(
        (
            *("kernel_dvfs_pipeline.runtime.read_slowdowns", "kernel_dvfs_pipeline.schedules.read_schedule"),
            *("kernel_dvfs_serving.benchmarks.read_power", "kernel_dvfs_serving.profile._parsed"),
        ),
        _MADE,
    ),
    "kernel_dvfs.measurement.visit.read_record": "tests/measurement/test_visit.py",
    "kernel_dvfs.plan.estimate._estimate": "the text of a setup that was just made",
    "kernel_dvfs.plan.study.planned_s": "the text of a setup that was just made",
    "kernel_dvfs.native.agreement.of_study": "what a build has written, whose record was read whole before",
    "kernel_dvfs.native.agreement.read": "tests/native/test_row_agreement.py damages it",
    "kernel_dvfs_serving.deployment.sealed_yaml": "the text of a plan that was just made",
    "kernel_dvfs.native.build._built": "what CMake has just written",
    "kernel_dvfs.native.build._flags": "what CMake has just written",
    **dict.fromkeys(
        (
            *("kernel_dvfs_deploy.page._iteration", "kernel_dvfs.report.page.provenance.tally"),
            *(f"kernel_dvfs.report.results.Results.{name}" for name in ("deployable", "frontier")),
        ),
        _RESULTS,
    ),
    **dict.fromkeys(
        (
            *("kernel_dvfs_serving.benchmarks._read_list", "kernel_dvfs_serving.commands.replay._settings"),
            *(
                f"kernel_dvfs_serving.study.{name}"
                for name in ("ServingStudy._asked", "ServingStudy.experiment", "_check")
            ),
        ),
        _SERVING,
    ),
}


def places():
    """Each place in the code that turns text into data, by its whole name."""
    for path in sorted((ROOT / "workflow").rglob("*.py")):
        tree, names = ast.parse(path.read_text("utf-8")), {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
            elif isinstance(node, ast.Import):
                names |= {each.asname or each.name: each.name for each in node.names}
        module = ".".join(path.relative_to(ROOT / "workflow").with_suffix("").parts).removesuffix(".__init__")
        yield from within(tree, [module], names)


def within(node, inside, names):
    for child in ast.iter_child_nodes(node):
        own = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if isinstance(child, ast.Call) and called(child.func, names) in PARSERS:
            yield ".".join(inside)
        yield from within(child, [*inside, child.name] if own else inside, names)


def called(node, names):
    if isinstance(node, ast.Attribute):
        return f"{called(node.value, names)}.{node.attr}"
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else ""


@pytest.mark.slow
def test_every_place_that_reads_a_file_has_a_whole_one_to_damage_or_a_reason_why_not(bases):
    found = set(places())
    assert found - set(READERS) - set(OTHERS) == set(), "give each a whole file in `bases`"
    assert (set(READERS) | set(OTHERS)) - found == set(), "not there any more"
    assert set(READERS.values()) == set(bases)
    for reason in OTHERS.values():
        named = [word.rstrip(",;") for word in reason.split() if word.startswith("tests/")]
        assert all((ROOT / each).is_file() for each in named), reason


class Unlimited:
    """A board that takes any power limit."""

    limit_mw = 700_000

    def power_management_limit_mw(self):
        return self.limit_mw

    def limit_power(self, limit_mw):
        assert isinstance(limit_mw, int) and 0 < limit_mw < 2**32
        self.limit_mw = limit_mw


@pytest.fixture(scope="module")
def bases(tmp_path_factory, setup_of, study_options):
    """{name: (the bytes of a whole file, where it lies, what reads it)}"""
    at = tmp_path_factory.mktemp("whole")
    found = {}

    def base(name, file, text, read):
        path = at / name.replace(" ", "-") / file
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = text if isinstance(text, bytes) else (text if isinstance(text, str) else json.dumps(text)).encode()
        path.write_bytes(whole)
        read(path)  # the whole one is taken
        path.write_bytes(whole)  # a power limit that was given back is away
        found[name] = whole, path, read

    base("step", "step.json", (ROOT / "tests/workload/steps/hand_made.json").read_bytes(), step.read)
    shown = {"schedules": 9, "passed": 1, "pairs": {"a": (900, 5001)}, "time_percent": [-0.5, -0.75]}
    shown |= {"energy_percent": -3.5, "energy_se_percent": 0.25, "over_percent": 10, "another_minute": 0.015}
    read, rows = {"visit/s0/0-auto-auto.json": "0" * 64}, {"target": ["a"], "time_s": [0.5]}
    done = study_file.ByClock("0" * 12, {"ties": "tied"}, read, {"kernel-slack0": shown}, rows, {"minutes": 7.5}, "t")
    study_file.write(str(at / "by_clock.json"), done)
    whole = (at / "by_clock.json").read_bytes()
    base("study by clock", "by_clock.json", whole, lambda path: study_file.read(str(path)))
    board = {"name": "NVIDIA H200", "uuid": "GPU-1", "slug": "h200-1", "pci_bus_id": "0", "driver": "580"}
    board |= {"vbios": None, "power_limit_mw": 700_000, "ecc": True, "compute_capability": "9.0", "sm_count": 132}
    board |= {"threads_per_sm": 2048, "energy_scope": "board"}
    board |= {"clocks": {"core_mhz": {"listed": {"2201": [345, 1980]}}, "mem_mhz": [2201]}}
    base("facts", "gpu.json", board, facts._read)
    base("node", "node.json", {"node": "n7"}, lambda path: facts.node_of(path.parent.name, str(path.parents[1])))
    held = {"schema": lease.SCHEMA, "uuid": "GPU-1", "pid": 5, "process_start": 7, "boot_id": "b", "user": "u"}
    held |= {"host": "h", "since_utc": "2026-11-21T00:00:00Z", "requested": "1500-2201"}
    base("lease", "l.json", held, lambda path: lease.parse(path.read_text("utf-8", "replace")))
    before = {"schema": power.SCHEMA, "boot_id": lease.boot_id(), "limit_mw": 537_000}
    file = Path(lease.path_of("GPU-1", str(at))).with_suffix(".power").name
    base("power limit", file, before, lambda path: power.PowerLimit("GPU-1", str(path.parent)).give_back(Unlimited()))
    latency = json.loads((ROOT / "experiments/results/latency_dry_run_h200.json").read_text())
    del latency["is_dry_run"]
    times = {"n": 9, "mean": 0.02, "median": 0.02, "p5": 0.01, "p95": 0.03, "max": 0.04}
    own = {"n": 9, "missed": 1, "settled_s": times, "stall_s": times}
    base("latency", "latency.json", latency | {"domains": {"core": own, "mem": own}}, latency_file.read)
    kept = {"130000": {"m1": {"instance": "i", "chosen_by": "timed", "pinned": "AAAA"}}}
    algorithms = {"schema": "kernel-dvfs/gemm-algorithms/1", "cublaslt": kept}
    base("algorithms", "a.json", algorithms, lambda path: GemmAlgorithms(str(path), 130000))
    build = fake.build_record(at)
    base("build", "build.json", build.read_bytes(), lambda path: read_build(str(path)))
    base("configuration", "config.yaml", (ROOT / "config.yaml").read_bytes(), read_configuration)
    tuned = {"device_name": "A100", "kernel_name": "k", "problem_size": "9", "tune_params_keys": ["nvml_gr_clock"]}
    tuned |= {"tune_params": {"nvml_gr_clock": [900, 1200]}, "objective": "time"}
    tuned["cache"] = {str(mhz): {"nvml_gr_clock": mhz, "time": 1e3 / mhz, "nvml_energy": 0.1} for mhz in (900, 1200)}
    out = at / "out.parquet"
    base("kernel tuner", "k.json", tuned, lambda path: import_to_profile(path, out, reference="highest"))
    rows = [f"{kernel},{core},5001,{9 / core!r},{core / 90!r}" for kernel in "ab" for core in (900, 1200, 1500)]
    table = "\n".join(["kernel,core_mhz,mem_mhz,time_s,energy_j", *rows]) + "\n"
    base("table", "t.csv", table, lambda path: import_to_profile(path, out, reference="highest"))
    profile, chosen = str(at / "p.parquet"), str(at / "schedule.json")
    import_to_profile(at / "table/t.csv", profile, reference="highest")
    assert main(["choose", profile, "-o", chosen]) == 0
    base("schedule", "s.json", Path(chosen).read_bytes(), read_schedule)
    base("order", "order.json", ["a", "b", "a"], lambda path: read_order(path, profile))
    iteration = str(at / "iteration.json")
    words = [
        "sequence",
        profile,
        "--switch-latency",
        "0.001",
        "--order",
        str(at / "order/order.json"),
        "-o",
        iteration,
    ]
    assert main(words) == 0
    base("iteration", "i.json", Path(iteration).read_bytes(), read_iteration)
    base("timing of an iteration", "i.json", Path(iteration).read_bytes(), read_timing)
    write_rows(at / "rows.json", [{"schedule": "a", "energy_change_percent": -7.25, "is_default": True, "costs": None}])
    base("rows of a table", "t.json", (at / "rows.json").read_bytes(), read_rows)
    stages = "stage,instruction,core_mhz,mem_mhz,time_s,energy_j\n"
    stages += "".join(f"{k},{what},{mhz},,{9 / mhz!r},{mhz / 90}\n" for k in (0, 1) for what in ("forward", "backward")
                      for mhz in (900, 1200))  # fmt: skip
    base("stages", "stages.csv", stages, read_stage_profile)
    options = study_options | {"stages": 2, "microbatches": [4], "total_microbatches": 8, "straggler": [1.05]}
    options |= {"switch_latency_s": [0], "name": "s"}
    make_study(at / "stages/stages.csv", at / "study-made", options)
    base("study", "study.json", (at / "study-made/study.json").read_bytes(), read_study)
    operations = [
        {"stage": k, "virtual_stage": k, "instruction": what, "microbatch": 0}
        for what, order in (("forward", (0, 1)), ("backward", (1, 0)))
        for k in order
    ]
    edges = [{"tail": k, "head": k + 1, "lag_s": 0.001} for k in range(3)]
    graph = {"schema": "kernel-dvfs/pipeline-graph/1", "stages": 2, "operations": operations, "edges": edges}
    base("graph", "graph.json", graph, read_graph)
    clocks = [{"share_of_kernels": 0.4, "core_mhz": 900, "mem_mhz": None}]
    clocks.append({"share_of_kernels": 0.6, "kernel_setting": "b"})
    instruction = {"instruction": "forward", "virtual_stage": 0, "microbatch": 0, "begin_s": 0.0, "end_s": 0.5}
    ranks = [{"stage": 0, "instructions": [instruction | {"clocks": clocks}]}]
    plan = {"schema": "kernel-dvfs/pipeline-plan/1", "time_s": 1.5, "ranks": ranks}
    base("plan", "plan.json", plan, read_plan)
    trace = (ROOT / "workflow/kernel_dvfs_serving/traces/synthetic_hour.csv").read_text().splitlines()
    base("trace", "trace.csv", "\n".join(trace[:40]) + "\n", read_trace)
    request = {"timestamp": 3000, "input_length": 310, "output_length": 21, "hash_ids": [0]}
    base("trace of lines", "trace.jsonl", json.dumps(request) + "\n" + json.dumps(request) + "\n", read_trace)
    static = {"keep_percent": 99.0, "kept_on": "both halves, slower steps", "servers": 2, "tp": 4, "clock": "1400"}
    static |= {"rest": "345", "router": "least requests", "step_tokens": 2048, "answer_tokens": 200.5}
    about = {"schema": "kernel-dvfs/serving-static/3", "cells": 1, "slo_scale": 1.0, "gaps": "mean"}
    plans = yaml.safe_dump(about | {"plans": [static]})
    base("static", "plan.yaml", plans, lambda path: read_static(str(path), 99.0))
    return found


def read_configuration(path):
    values = configuration.load(str(path))
    configuration.check(values, ROOT / "workflow/schemas/config.schema.yaml")


def read_schedule(path):
    found = schedule_file.read_schedule(path)
    schedule_file.schema_of(path)
    schedule_file.pairs_of(path, found)


def read_order(path, profile):
    told = path.with_name("told.json")
    words = ["sequence", profile, "--switch-latency", "0.001", "--order", str(path), "-o", str(told)]
    if main(words):
        raise InputError("refused")


def read_study(path):
    assert kind_of(path.parent) in ("pipeline", "serving", "measured")
    PipelineStudy(path.parent)


WORDS = ("", " ", "../../x", "/etc/passwd", "$(touch x)", "a\nb", "a\x1b[2J", "\u0661", "é" * 300, "nan", "-", "0")
BYTES = (
    b"",
    b"\x00",
    b"\xff",
    b'"',
    b",",
    b"{",
    b"[",
    b"1e999",
    b"-",
    b"nan",
    b"\n",
    b";",
    b"\xe2\x80\xae",
    b"#",
    b"&a",
)
NUMBERS = (0, -1, -0.0, 1e308, -1e308, 1e-308, 10**30, 10**307, 10**400, 2**63, 2**31, 0.5, True)


def another(value, rng):
    """A value of a damaged file in the place of this one."""
    kind = rng.randrange(7)
    if kind == 0:
        return rng.choice(WORDS)
    if kind == 1:
        return rng.choice(NUMBERS)
    if kind == 2:
        return rng.choice([None, [], {}, [[]], {"": {}}, [None] * 3, [1, "a"]])
    if kind == 3 and isinstance(value, int | float) and abs(value) < 1e300:
        return value * rng.choice([-1, 1000, 0.001, 1e300])
    if kind == 4 and isinstance(value, list) and value:
        return rng.choice([value[:-1], value + value[:1], value[::-1], [*value, None]])
    if kind == 5 and isinstance(value, dict) and value:
        gone = rng.choice(sorted(value))
        return {name: each for name, each in value.items() if name != gone}
    if kind == 6 and isinstance(value, dict):
        return value | {rng.choice(WORDS): 1}
    return str(value)


def spots(node):
    """(container, key) of all that stands in parsed JSON."""
    for key, child in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield node, key
        if isinstance(child, dict | list):
            yield from spots(child)


def damaged(whole, rng):
    """The bytes of a file with one to three damages: of its values where it is JSON or YAML, else of its bytes."""
    how = rng.choice(["value"] * 6 + ["bytes", "bytes", "cut", "twice"])
    try:
        content = json.loads(whole) if whole[:1] in b"{[" else yaml.safe_load(whole) if b": " in whole else None
    except (ValueError, yaml.YAMLError):
        content = None
    if how == "value" and isinstance(content, dict | list):
        for _ in range(rng.choice([1, 1, 2, 3])):
            places = list(spots(content))
            if places:
                container, key = rng.choice(places)
                container[key] = another(container[key], rng)
        dump = json.dumps if whole[:1] in b"{[" else yaml.safe_dump
        return dump(content).encode("utf-8", "replace")
    if how == "cut":
        return whole[: rng.randrange(len(whole))]
    if how == "twice":
        middle = rng.randrange(len(whole))
        return whole[:middle] + whole[rng.randrange(len(whole)) :] + whole[middle:][:200]
    text = bytearray(whole)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(text))
        text[at : at + rng.choice([0, 1, 1, 3])] = rng.choice(BYTES)
    return bytes(text)


def test_whatever_is_in_a_file_its_reader_returns_or_refuses_it_in_one_line(bases, fuzz, fuzz_seed, capsys):
    """And leaves no file anywhere else."""
    each, wrong, refused = fuzz * len(bases) // 10, [], 0
    folder = next(iter(bases.values()))[1].parents[1]
    before = sorted(str(path) for path in folder.rglob("*"))
    for name, (whole, path, read) in bases.items():
        rng = random.Random(f"{fuzz_seed} {name}")
        for number in range(each // len(bases) + 1):
            text = damaged(whole, rng)
            path.write_bytes(text)
            try:
                read(path)
            except InputError as error:
                refused += 1
                line = str(error)
                if "\n" in line or not line:
                    wrong.append((name, number, line))
            except Exception:
                wrong.append((name, number, traceback.format_exc(limit=-3)))
            said = "".join(capsys.readouterr())
            if not said.replace("\n", "").isprintable():
                wrong.append((name, number, repr(said)))
        path.write_bytes(whole)
    after = sorted(str(path) for path in folder.rglob("*"))
    written = [path for path in after if path not in before and Path(path).name not in ("told.json", "out.parquet")]
    assert not wrong, f"{len(wrong)}, the first of each kind: " + "\n".join(
        f"{name} {number}: {said}" for name, number, said in {each[0]: each for each in wrong}.values()
    )
    assert not written and refused > each // 4, (written, refused)
