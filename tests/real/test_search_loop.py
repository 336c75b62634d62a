"""A search on a real GPU: a session of its own for each block, one clock pair after the other, goes on where it
was stopped. A validation repeat is a session of its own too."""

import json

import yaml

from kernel_dvfs.measurement import record
from kernel_dvfs.measurement import setup as setups

KERNELS = ("forward_fc_gemm", "forward_gelu", "forward_attproj_residual")
CODE = (
    "from kernel_dvfs.plan.config import load\nfrom kernel_dvfs.plan.study import plan\n"
    "print(plan(load('config.yaml') | {'gpu': 'nvml'}, 'r').setup.write())"
)
OPTIONS = {
    "search": "exhaustive",
    "pairs": "auto-auto,1500-3201,1200-3201,900-2201",
    "auto_repeats": 2,
    "limits_percent": [0],
    "ties": "tied",
    # of two windows a point
    "refine": {"windows": 100, "hours": None, "over_percent": 10},
}


def stretches(records: list) -> list:
    """The clocks of records in the order of their measurement, each run of the same once."""
    clocks = [(each["request"]["core_mhz"], each["request"]["mem_mhz"]) for each in records]
    return [pair for place, pair in enumerate(clocks) if not place or clocks[place - 1] != pair]


def small_setup(made) -> tuple[str, list[str]]:
    """(path of a setup of a few kernels, their names)."""
    (made.folder / "config.yaml").write_text(yaml.safe_dump(made.config))
    done = made.python(CODE)
    assert done.returncode == 0, done.stderr
    whole = setups.read(str(made.folder / done.stdout.strip()))
    known = [name for name in KERNELS if name in whole.targets["kernel"]]
    targets = {"kernel": {name: whole.targets["kernel"][name] for name in known}, "pass": {}}
    return setups.store(str(made.folder / "s"), whole.gpu, whole.workload, targets, whole.measurement), known


def test_a_repeat_of_a_validation_is_a_measuring_session_of_its_own_that_its_record_names(lab):
    made = lab()
    path, known = small_setup(made)

    def sessions(repeat, *more) -> set[str]:
        output = made.folder / f"repeat-{repeat}.json"
        words = ["measure", "compare", "--gpu", path, "--clocks", "1500,2201", "--first", repeat, "--last", repeat]
        done = made.command(*words, *more, "-o", output)
        assert done.returncode == 0, done.stderr
        _, comparisons = record.read_comparison(str(output))
        assert {each["target"] for each in comparisons} == set(known)
        return {each["session"] for each in comparisons}

    first, second, third = sessions(0, "--new-session"), sessions(1, "--new-session"), sessions(2)
    assert len(first) == len(second) == 1 and first != second, "another process"
    assert third == second, "the same process where nothing else is asked for"
    made.stop()
    assert made.restored()


def test_clocks_are_changed_once_a_pair_and_what_is_there_is_not_measured_again(lab):
    made = lab()
    path, known = small_setup(made)
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
    sessions: dict[str, list] = {}
    for file in sorted(files, key=lambda file: (file.stat().st_mtime_ns, files[file]["run"]["order"])):
        sessions.setdefault(files[file]["run"]["run_id"].partition(".")[0], []).append(files[file])
    swept, *blocks = sessions.values()
    assert len(swept) == len(known) * 5 and {each["run"]["campaign"] for each in swept} == {"sweep", "sweep-1"}
    rounds = json.loads((made.folder / "search.json").read_text())["rounds"]
    asked = [sum(len(request[-1]) for request in each["requests"]) for each in rounds]
    assert [len(block) for block in blocks] == asked[:-1] and asked[-1] == 0
    assert len(blocks) >= 3 and rounds[-1]["stage"] == "walk"
    # auto first and last, every other pair once between
    order = stretches(swept)
    assert order[0] == order[-1] == ("auto", "auto") and len(order) == 5
    # four times a block, in each one pair after the other
    for block in blocks:
        assert len(stretches(block)) <= 4 * len(set(stretches(block)))
        assert len({each["run"]["campaign"] for each in block}) >= 4
        # a process; its sessions have their tensors in other places, which their names say
        names = [each["run"]["run_id"].partition(".")[2] for each in block]
        assert names == sorted(names) and set(names) == {"", "1", "2", "3"}
    assert {each["run"]["run_id"].partition(".")[2] for each in swept} == {""}

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
