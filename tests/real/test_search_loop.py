"""A search on a real GPU: one clock pair after the other, and it goes on where it was stopped."""

import json

import yaml

from kernel_dvfs.measurement import setup as setups

KERNELS = ("forward_fc_gemm", "forward_gelu", "forward_attproj_residual")
CODE = (
    "from kernel_dvfs.plan.study import load, plan\n"
    "print(plan(load('config.yaml') | {'gpu': 'nvml'}, 'r').setup.write())"
)
OPTIONS = {
    "search": "exhaustive",
    "pairs": "auto-auto,1500-3201,1200-3201,900-2201",
    "auto_repeats": 2,
    "slacks_percent": [0],
    "ties": "tied",
    "refine": {"rounds": 1, "gain": 0.5, "checks": 2, "margin_z": 1},
}


def stretches(records: list) -> list:
    """The clocks of records in the order of their measurement, each run of the same once."""
    clocks = [(each["request"]["core_mhz"], each["request"]["mem_mhz"]) for each in records]
    return [pair for place, pair in enumerate(clocks) if not place or clocks[place - 1] != pair]


def test_clocks_are_changed_once_a_pair_and_what_is_there_is_not_measured_again(lab):
    made = lab()
    (made.folder / "config.yaml").write_text(yaml.safe_dump(made.config))
    done = made.python(CODE)
    assert done.returncode == 0, done.stderr
    whole = setups.read(str(made.folder / done.stdout.strip()))
    known = [name for name in KERNELS if name in whole.targets["kernel"]]
    targets = {"kernel": {name: whole.targets["kernel"][name] for name in known}, "pass": {}}
    path = setups.store(str(made.folder / "s"), whole.gpu, whole.workload, targets, whole.measurement)
    words = [
        "measure",
        "search",
        "--gpu",
        path,
        "--records",
        "m",
        "--options",
        json.dumps(OPTIONS),
        "-o",
        "search.json",
    ]
    done = made.command(*words)
    assert done.returncode == 0, done.stderr

    files = {file: json.loads(file.read_text()) for file in (made.folder / "m").glob("*/*/*/r*.json")}
    records = sorted(files.values(), key=lambda record: record["run"]["order"])
    swept = [record for record in records if record["run"]["campaign"] == "sweep"]
    again = [record for record in records if record["run"]["campaign"] != "sweep"]
    assert len(swept) == len(known) * 5 and again and records == swept + again
    # auto first and last, every other pair once between
    order = stretches(swept)
    assert order[0] == order[-1] == ("auto", "auto") and len(order) == 5
    assert len(stretches(again)) == len(set(stretches(again)))

    before, text = {file: file.stat().st_mtime_ns for file in files}, (made.folder / "search.json").read_bytes()
    gone = next(file for file, record in files.items() if record["run"]["campaign"] == "sweep")
    whole_search = json.loads(text)
    assert set(whole_search["records"]) == {str(file.relative_to(made.folder / "m")) for file in files}
    done = made.command(*words)
    assert done.returncode == 0 and (made.folder / "search.json").read_bytes() == text
    assert {file: file.stat().st_mtime_ns for file in files} == before
    gone.unlink()
    done = made.command(*words)
    assert done.returncode == 0 and "sweep: 1 point to measure" in done.stderr
    after = {file: file.stat().st_mtime_ns for file in before}
    assert {file for file in after if after[file] != before[file]} == {gone}
