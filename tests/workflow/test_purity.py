"""Looking changes nothing: `snakemake -n`, `--lint`, `--list-rules`, `--summary` write no file and start no process."""

import hashlib
import os
import re

import forked
import pytest
from reduced_study import REDUCED, clone, command, started

pytestmark = pytest.mark.workflow

# a module that runs Snakemake's own entry point and tells of every process that is started
WATCHED = """
import sys
started = []
def watch(event, arguments):
    if arguments and arguments[0] == "uname":
        return  # Python's own module platform, which Snakemake imports
    if event in ("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "pty.spawn"):
        started.append(f"{event} {arguments}")
sys.addaudithook(watch)
from snakemake.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print("started:", started, file=sys.stderr)
sys.exit(code)
"""
MODES = (["--dry-run"], ["--lint"], ["--list-rules"], ["--summary"])


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    return clone(tmp_path_factory.mktemp("pure") / "clone")


def contents(directory) -> dict:
    """{path: checksum} of everything that is not Snakemake's or Python's own note."""
    return {
        path.relative_to(directory): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file() and not {".snakemake", "__pycache__"} & set(path.relative_to(directory).parts)
    }


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode[0].strip("-"))
def test_looking_at_a_study_that_is_not_there_yet_changes_nothing(untouched, tmp_path, mode):
    before = contents(untouched)
    (tmp_path / "watched.py").write_text(WATCHED)
    words = [*mode, "--cores", "1", "--config", *REDUCED, "--", "all"]
    done = forked.run("-m", "watched", words, untouched, os.environ | {"PYTHONPATH": str(tmp_path)}, apart=True)
    # that there is advice, which --lint always has here, is exit code 1
    assert done.returncode == (mode == ["--lint"]), done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stderr.splitlines()[-1] == "started: []", done.stderr[-3000:]
    assert contents(untouched) == before


def test_the_workflow_is_the_same_from_where_the_catalogue_looks_for_it(untouched):
    """Run elsewhere, as a user of the catalogue does; the same jobs, and the configuration that comes with it."""
    elsewhere = untouched.parent / "elsewhere"
    elsewhere.mkdir()
    told = []
    for file in ("Snakefile", "workflow/Snakefile"):
        words = command("all", dry=True, options=["--snakefile", str(untouched / file)])
        done = started(elsewhere, words)
        assert done.returncode == 0, done.stdout[-3000:]
        told.append(done.stdout)
    jobs = [text[text.index("Job stats:") :].partition("\n\n")[0] for text in told]
    assert jobs[0] == jobs[1] and "measure" in jobs[0]


def test_no_job_of_a_simulated_study_waits_for_a_core(untouched):
    """While one does, Snakemake looks at all ready jobs again and again (rules/common.smk)."""
    asked = ("by_clock={minutes: 25, worth_percent: 0.02, over_percent: 10}",)
    said = started(untouched, command("all", dry=True, config=asked, options=["--printshellcmds"])).stdout
    jobs = dict(re.findall(r"^(?:rule|checkpoint) (\w+):\n((?: .*\n)+(?:Shell command: .*\n)?)", said, re.M))
    assert {"measure", "by_clock", "build", "native_rows", "aggregate", "choose_deployable", "table"} <= set(jobs)
    assert {rule for rule, about in jobs.items() if "threads: 0" not in about} == {"all"}
    # to linear algebra no thread means all cores, and sums with other last digits
    beside = {rule for rule, about in jobs.items() if "python -m kernel_dvfs" in about}
    assert beside == {"by_clock", "build", "native_rows", "aggregate", "choose_deployable"}
    assert all("OPENBLAS_NUM_THREADS=1 " in jobs[rule] for rule in beside)


@pytest.mark.parametrize(
    ("name", "text", "twice"),
    [
        ("config.yaml", "batch: 20", "batch"),
        ("own.yaml", "native:\n  cuda: off\n  cuda: on", "cuda"),
        ("own.json", '{"seed": 1,\n\t"seed": 2}', "seed"),
        ("also.yaml", '{"seed": 1,\n\t"seed": 2}', "seed"),
        ("flow.json", "seed: 1\nseed: 2", "seed"),
    ],
)
def test_a_name_that_stands_twice_in_a_configuration_is_refused_whoever_names_the_file(tmp_path, name, text, twice):
    """Snakemake takes the last of them without a word."""
    with open(clone(tmp_path) / name, "a") as file:
        file.write(text + "\n")
    own = [] if name == "config.yaml" else ["--configfile", name]
    done = started(tmp_path, ["snakemake", "--dry-run", "--cores", "1", *own, "--", "all"])
    (line,) = [line for line in done.stdout.splitlines() if "error" in line.lower()]
    assert done.returncode and re.match(rf"error: configuration (\S*/)?{name}: '{twice}' appears twice", line)
    assert line.endswith("; mend it")
