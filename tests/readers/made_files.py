"""Files of every kind that somebody's could be, made at random: plausible in part, odd in part, hostile in part.

Nothing here is a damaged whole file (tests/test_fuzzed_readers.py has those): each is built from headings, keys, cells
and shapes, of at most 1 MB on the disk.
"""

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kernel_dvfs.choice import schedule_file
from kernel_dvfs.measurement import latency_file
from kernel_dvfs.plan import config as configuration
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.profile.table import import_table
from kernel_dvfs.workload import step
from kernel_dvfs_deploy.sequence.schedule import read_iteration
from kernel_dvfs_pipeline.graph import read_graph
from kernel_dvfs_pipeline.runtime import read_slowdowns
from kernel_dvfs_pipeline.schedules import read_schedule
from kernel_dvfs_pipeline.stage_profile import read_stage_profile
from kernel_dvfs_pipeline.study import read_plan
from kernel_dvfs_serving.benchmarks import import_runs, read_power, read_results
from kernel_dvfs_serving.deployment import read_static
from kernel_dvfs_serving.profile import read_profile as read_serving_profile
from kernel_dvfs_serving.trace import read_trace

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTE = 1_000_000

WORDS = (
    *("", " ", "k", "auto", "N/A", "[N/A]", "nan", "inf", "-inf", "-1", "0", "1e308", "1e-320", "1,5", "1_0", "0x10"),
    *("9" * 400, "é\u200f", "\x00", "\x1b[2J", '"', "'", "=1+1", "../x", "-", "1 2", "١٢", "1.5 ms", "300 W", "∞"),
)
DATES = ("2026/03/01 12:00:00.000", "2026-03-01 12:00:00.5", "2026-03-01T12:00:00+02:00", "1772366400", "1772366400123")
# heading -> how a plausible cell of it is drawn
CELLS = {
    "kernel": lambda rng: rng.choice(["gemm", "softmax", "a,b", "κ"]),
    "clock": lambda rng: rng.choice(["", "auto", "1410", "1200 MHz", "1005.0", "1410000"]),
    "small": lambda rng: f"{rng.lognormal(0, 2):.5g}",
    "watt": lambda rng: f"{rng.uniform(30, 700):.4g}{rng.choice(['', ' W'])}",
    "whole": lambda rng: str(rng.integers(0, 6)),
    "many": lambda rng: str(rng.integers(1, 5000)),
    "date": lambda rng: rng.choice(DATES),
    "word": lambda rng: rng.choice(["forward", "backward", "measured", "MM", "SS", "llama2-70b", "h100_sxm", "GPU-1"]),
    "one": lambda rng: "1",
}
# {kind: {kind of cell: headings}}
HEADS = {
    "table": {"kernel": "kernel", "clock": "core_mhz;Mem Clock [MHz]", "small": "time_ms;energy_j", "word": "gpu"}
    | {"watt": "power_w;power_limit", "whole": "is_auto"},
    "stages": {
        "whole": "stage;rank",
        "word": "instruction;source",
        "clock": "frequency;mem_mhz",
        "small": "time;energy",
    },
    "order": {"whole": "stage;microbatch;chunk", "word": "instruction"},
    "stragglers": {"whole": "iteration;pipeline", "small": "slowdown"},
    "trace": {"date": "TIMESTAMP", "many": "ContextTokens;GeneratedTokens", "word": "Log Type"},
    "power": {"date": "timestamp", "word": "uuid", "watt": "power.draw [W]", "clock": "clocks.sm [MHz]"},
    "serving profile": {"one": "model;gpu", "whole": "tp", "many": "core_mhz;tps;kv_tokens", "word": "class;source"}
    | {"watt": "power_w", "small": "ttft_p50_s;ttft_p99_s;tbt_p50_s;tbt_p99_s"},
}


def sheet(heads):
    """A drawer of CSVs with some of these headings."""
    every = [(name, kind) for kind, names in heads.items() for name in names.split(";")]

    def draw(rng):
        own = [head for head in every if rng.random() > 0.04]
        rng.shuffle(own)
        shape = rng.choice(["usual"] * 12 + ["wide", "long", "one huge cell", "empty lines", "quotes"])
        rows = int(rng.integers(0, 30)) if shape != "long" else int(rng.integers(2_000, 20_000))
        if shape == "wide":
            own = own + [(f"x{place}", "small") for place in range(int(rng.choice([50, 3_000, 30_000])))]
            rows = min(rows, 2)
        odd = rng.choice([0.0, 0.0, 0.02, 0.3])
        name = (lambda text: text) if rng.random() < 0.6 else str.upper
        lines = [[name(head) for head, _ in own]]
        cells = [[CELLS[kind](rng) for _ in range(7)] for _, kind in own]
        for row in range(rows):
            if row < 200:
                made = [str(rng.choice(WORDS)) if rng.random() < odd else str(rng.choice(each)) for each in cells]
            else:
                made = [each[row % 7] for each in cells]
            lines.append(made)
        if lines and rows and rng.random() < 0.1:
            lines.insert(int(rng.integers(1, len(lines) + 1)), lines[0])
        if rng.random() < 0.1:
            lines.insert(int(rng.integers(0, len(lines) + 1)), ["#"])
        if rng.random() < 0.1 and len(lines) > 1:
            lines[-1] = lines[-1][: int(rng.integers(0, len(own) + 1))]
        if shape == "one huge cell" and rows and own:
            lines[-1][-1:] = [str(rng.choice(["9", "x", "1e", " "])) * int(rng.choice([1_000, 200_000]))]
        mark = str(rng.choice([",", ",", ",", ";", "\t", "|", ", "]))
        quoted = shape == "quotes"
        text = "\n".join(mark.join(f'"{cell}"' if quoted else cell for cell in line) for line in lines)
        if shape == "empty lines":
            text += "\n" * int(rng.integers(1, 900_000))
        return encoded(rng, text + ("\n" if rng.random() < 0.8 else ""))

    return draw


def encoded(rng, text):
    """Text as bytes, in one of the ways in which people's files are."""
    how = rng.choice(["utf-8"] * 12 + ["utf-8-sig", "utf-16", "latin-1", "windows", "gzip"])
    if how == "gzip":
        return gzip.compress(text.encode("utf-8", "replace"))
    if how == "windows":
        return text.replace("\n", "\r\n").encode("utf-8", "replace")
    return text.encode(how, "replace")


def value(rng, depth=0):
    """Any JSON value."""
    kind = int(rng.integers(0, 12)) if depth < 4 else int(rng.integers(0, 7))
    if kind < 3:
        return str(rng.choice(WORDS))
    if kind < 5:
        return [0, -1, 1.5, 1e308, 10**30, 2**63, 10**400, True][int(rng.integers(0, 8))]
    if kind < 7:
        return [None, [], {}, "measured", 1410][int(rng.integers(0, 5))]
    if kind < 10:
        return [value(rng, depth + 1) for _ in range(int(rng.integers(0, 4)))]
    return {str(rng.choice(WORDS)): value(rng, depth + 1) for _ in range(int(rng.integers(0, 4)))}


def changed(rng, content):
    """A copy of whole content with a few of its values, or of its keys, others."""
    content = json.loads(json.dumps(content))
    for _ in range(int(rng.integers(0, 4))):
        node, at = content, None
        while isinstance(node, dict | list) and node and (at is None or rng.random() < 0.7):
            held = node
            at = list(node)[int(rng.integers(0, len(node)))] if isinstance(node, dict) else int(rng.integers(len(node)))
            node = node[at]
        if at is None:
            return value(rng)
        if isinstance(held, dict) and rng.random() < 0.2:
            del held[at]
        else:
            held[at] = value(rng)
    return content


def document(whole):
    """A drawer of JSON files: changed whole ones, others' values, and shapes that cost much."""

    def draw(rng):
        how = rng.choice(["changed"] * 8 + ["any", "twice", "deep", "long", "numbers", "lines", "empties"])
        size = int(rng.choice([100, 20_000, 90_000]))
        if how == "twice":
            names = ",".join(f'"{place}":1' for place in range(size // 2))
            return f'{{{names},"0":2}}'.encode()[:MOST_BYTE]
        if how == "deep":
            deep = int(rng.choice([60, 70, 700, 950, 100_000]))
            inner = "[" * deep + "]" * deep
            text = json.dumps(whole) if rng.random() < 0.7 else "{}"
            return (text[:-1] + (", " if len(text) > 2 else "") + f'"extra": {inner}}}').encode()
        if how == "long":
            return json.dumps({"a" * size: "b" * size}).encode()
        if how == "numbers":
            return json.dumps(list(range(size))).encode()
        if how == "empties":
            return ("[" + "{}," * (size * 2) + "1]").encode()
        if how == "lines":
            return (
                "\n".join([json.dumps(whole)] * int(rng.integers(1, 5))) + str(rng.choice(["", "{", "\n"]))
            ).encode()
        text = json.dumps(changed(rng, whole) if how == "changed" else value(rng))
        return encoded(rng, text)

    return draw


def yaml_text(whole):
    """A drawer of YAML files."""
    tags = ("!!timestamp x", '!!int ""', "!!set [a]", "!!binary x", "!!float '1:1:1'", "!!omap x", "!!pairs [a]")
    tags += ("!!python/object:os.system x", "*nowhere", "&a [*a]", "? [a]\n: 1", "1:1:1:1:1:1", "!!null x", "!!bool x")

    def draw(rng):
        how = rng.choice(["changed"] * 6 + ["tag", "merge", "alias", "deep", "long", "wide", "block"])
        text = json.dumps(changed(rng, whole)) if how == "changed" else json.dumps(whole)[:-1]
        if how == "changed":
            return encoded(rng, text)
        if how == "merge":
            many = int(rng.integers(1, 9))
            head = "a0: &a0 {x: 1, y: 2}\n"
            star = [f"a{k}: &a{k} {{<<: [{', '.join([f'*a{k - 1}'] * 10)}], z{k}: 1}}\n" for k in range(1, many)]
            return (head + "".join(star)).encode()
        if how == "alias":
            head = "a0: &a0 [1, 1]\n"
            return (head + "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 9))).encode()
        if how == "deep":
            deep = int(rng.choice([50, 700, 5_000]))
            return ("x: " + "[" * deep + "]" * deep).encode()
        if how == "block":
            return "\n".join(" " * place + "a:" for place in range(int(rng.choice([50, 700])))).encode()
        if how == "long":
            return ("a: " + "x y\n  " * int(rng.choice([100, 10_000, 150_000]))).encode()
        if how == "wide":
            return "".join(f"k{place}: {place}\n" for place in range(int(rng.choice([100, 8_000, 60_000])))).encode()
        return (text + f', "extra": {rng.choice(tags)}}}').encode()

    return draw


def parquet(rng):
    """A Parquet file: columns of a table, of any types, some that unpack to much."""
    rows = int(rng.choice([0, 1, 5, 5, 5, 3_000, 400_000, 4_000_000]))
    long = rows > 5_000
    columns = {}
    for name in ("kernel", "core_mhz", "mem_mhz", "time_ms", "energy_j", "power_w", "extra"):
        kind = str(rng.choice(["usual"] * 8 + ["nested", "text", "bool", "null", "time", "none", "long text"]))
        if kind == "none":
            continue
        if kind == "usual":
            kind = "text" if name == "kernel" else "number"
        if kind == "number":
            base = {"core_mhz": 1410.0, "mem_mhz": 1215.0, "power_w": 250.0}.get(name, 1.0)
            columns[name] = pa.array(np.full(rows, base) if long else base * rng.uniform(0.9, 1.1, rows))
        elif kind in ("text", "long text"):
            word = "k" * (20_000 if kind == "long text" else 3)
            columns[name] = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [word])
            if not (long or kind == "long text"):
                columns[name] = columns[name].dictionary_decode()
        elif kind == "nested":
            columns[name] = pa.array([[1.0]] * min(rows, 3_000) + [None] * max(rows - 3_000, 0))
        elif kind == "bool":
            columns[name] = pa.array(np.ones(rows, bool))
        elif kind == "time":
            columns[name] = pa.array(np.zeros(rows, np.int64)).cast(pa.timestamp("ns"))
        else:
            columns[name] = pa.nulls(rows)
    made = io.BytesIO()
    pq.write_table(pa.table(columns or {"a": pa.nulls(rows)}), made, store_schema=bool(rng.random() < 0.5))
    return made.getvalue()


def _import(path):
    import_table(path, reference="highest")


def _configuration(path):
    configuration.check(configuration.load(str(path)), ROOT / "workflow/schemas/config.schema.yaml")


def _schedule(path):
    found = schedule_file.read_schedule(path)
    schedule_file.pairs_of(path, found)


def _runs(path):
    Path(path).with_name("r.json").write_text(json.dumps(BENCH))
    Path(path).with_name("p.csv").write_text("timestamp,index,power.draw [W]\n2026/03/04 11:59:30.000,0,400 W\n")
    import_runs(path)


TUNED = {"device_name": "A100", "kernel_name": "k", "problem_size": "9", "tune_params_keys": ["nvml_gr_clock"]}
TUNED |= {"tune_params": {"nvml_gr_clock": [900, 1200]}, "objective": "time"}
TUNED["cache"] = {str(mhz): {"nvml_gr_clock": mhz, "time": 1e3 / mhz, "nvml_energy": 0.1} for mhz in (900, 1200)}
T4 = {"results": [{"configuration": {"nvml_gr_clock": mhz}, "invalidity": "correct"} for mhz in (900, 1200)]}
for _result in T4["results"]:
    _result["measurements"] = [{"name": "time", "value": 2.1, "unit": "ms"}, {"name": "nvml_energy", "value": 0.4}]
BENCH = {"date": "20260304-120000", "duration": 30.0, "completed": 60, "failed": 0, "num_prompts": 60, "tp": 1}
BENCH |= {"total_input_tokens": 18000, "total_output_tokens": 9000, "median_ttft_ms": 60.0, "p99_ttft_ms": 180.0}
BENCH |= {"median_itl_ms": 12.0, "p99_itl_ms": 30.0, "start_times": [0.5] * 3, "ttfts": [0.02] * 3}
BENCH |= {"itls": [[0.01] * 3] * 3, "input_lens": [300] * 3, "output_lens": [150] * 3}
RUNS = {"model": "m", "gpu": "g", "kv_tokens": {"1": 9}, "kv_byte_per_token": 9}
RUNS["runs"] = [{"result": "r.json", "power": "p.csv", "tp": 1, "core_mhz": 1400, "idle_power_w": 50, "gpus": [0]}]
FIXED = {"keep_percent": 99.0, "kept_on": "both halves, slower steps", "servers": 2, "tp": 4, "clock": "1400"}
FIXED |= {"rest": "345", "router": "least requests", "step_tokens": 2048, "answer_tokens": 200.5}
STATIC = {"schema": "kernel-dvfs/serving-static/3", "cells": 1, "slo_scale": 1.0, "gaps": "mean"}
STATIC["plans"] = [FIXED]
GRAPH = {"schema": "kernel-dvfs/pipeline-graph/1", "stages": 1, "operations": [{"stage": 0, "instruction": "forward"}]}
PLAN = {"schema": "kernel-dvfs/pipeline-plan/1", "time_s": 1.5, "ranks": [{"rank": 0, "instructions": []}]}
SCHEDULE = {"schema": "kernel-dvfs/schedule/1", "status": "optimal", "clocks": {"gemm": {"core_mhz": 1410}}}
MOONCAKE = {"timestamp": 3000, "input_length": 310, "output_length": 21, "hash_ids": [0, 1]}
CONFIGURATION = {"gpu": {"kind": "table", "path": "a.csv", "units": {"a": "b"}}, "minutes": 5, "slack": [0, 1]}

# {kind: (the file's name, what draws one, what reads it)}
FILES = {
    "table": ("t.csv", sheet(HEADS["table"]), _import),
    "parquet": ("t.parquet", parquet, _import),
    "profile": ("p.parquet", parquet, read_profile),
    "kernel tuner": ("k.json", document(TUNED), _import),
    "t4": ("t4.json", document(T4), _import),
    "stages": ("s.csv", sheet(HEADS["stages"]), read_stage_profile),
    "order": ("o.csv", sheet(HEADS["order"]), read_schedule),
    "stragglers": ("slow.csv", sheet(HEADS["stragglers"]), lambda path: read_slowdowns(path, 8)),
    "graph": ("g.json", document(GRAPH), read_graph),
    "plan": ("plan.json", document(PLAN), read_plan),
    "trace": ("trace.csv", sheet(HEADS["trace"]), read_trace),
    "trace of lines": ("trace.jsonl", document(MOONCAKE), read_trace),
    "power": ("power.csv", sheet(HEADS["power"]), read_power),
    "results": ("r.json", document(BENCH), lambda path: [each.class_ for each in read_results(path)]),
    "runs": ("runs.yaml", yaml_text(RUNS), _runs),
    "serving profile": ("sp.csv", sheet(HEADS["serving profile"]), read_serving_profile),
    "static": ("static.yaml", yaml_text(STATIC), lambda path: read_static(str(path), 99.0)),
    "configuration": ("config.yaml", yaml_text(CONFIGURATION), _configuration),
    "configuration of json": ("config.json", document(CONFIGURATION), _configuration),
    "schedule": ("schedule.json", document(SCHEDULE), _schedule),
    "iteration": ("i.json", document({"schema": "kernel-dvfs/iteration/1", "launches": []}), read_iteration),
    "latency": ("l.json", document({"schema": "kernel-dvfs/latency/1", "gpu": {}}), latency_file.read),
    "step": ("step.json", document({"schema": "kernel-dvfs/step/1", "kernels": []}), step.read),
}


def drawn(kind, seed):
    """The bytes of a file of a kind, which is at most of MOST_BYTE."""
    return FILES[kind][1](np.random.default_rng(seed))[:MOST_BYTE]
