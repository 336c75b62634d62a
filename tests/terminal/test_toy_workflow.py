"""A small workflow run by Snakemake itself with the plugin: in a log, on a terminal, failing, stopped."""

import os
import pty
import re
import signal
import subprocess
import sys
import time

import forked
import pytest

pytestmark = pytest.mark.workflow

# a checkpoint after the measurements: how many tables there are is known only then
SNAKEFILE = """
from snakemake_logger_plugin_kernel_dvfs import at_end

at_end(lambda: "the answer, in results/toy")
N, WORK, TABLE = (config.get(key, value) for key, value in (("jobs", 6), ("work", "true"), ("table", "true")))

def tables(wildcards):
    with checkpoints.choose_clocks.get().output[0].open() as file:
        return expand("table/{i}", i=range(int(file.read())))

rule all:
    input: "page"

rule measure:
    output: "record/{i}"
    shell: "{WORK}; touch {output}"

checkpoint choose_clocks:
    input: expand("record/{i}", i=range(N))
    output: "schedule"
    shell: "echo 3 > {output}"

rule table_x:
    output: "table/{i}"
    log: "log/{i}"
    shell: "{{ echo 'error: no such table' >&2; {TABLE}; }} 2> {log}; touch {output}"

rule report_page:
    input: tables
    output: "page"
    shell: "touch {output}"
"""


@pytest.fixture
def toy(root, tmp_path):
    """`toy("-n", plugin=False, jobs=3)` is a command line, a folder and an environment for subprocess."""
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # Snakemake lists the members of sets
    env |= {"PYTHONPATH": str(root / "workflow"), "TERM": "xterm", "PYTHONHASHSEED": "0"}

    def command(*options, plugin=True, **config):
        words = [sys.executable, "-m", "snakemake", "--cores", "2", "--scheduler", "greedy", "--nolock", *options]
        words += ["--logger=kernel-dvfs"] * plugin
        if config:
            words += ["--config", *(f"{key}={value}" for key, value in config.items())]
        return {"args": words, "cwd": tmp_path, "env": env}

    return command


def run(command):
    return forked.run("-m", "snakemake", command["args"][3:], command["cwd"], command["env"], apart=True, seconds=120)


def test_a_log_ends_with_the_count_and_the_answer(toy):
    done = run(toy())
    assert done.returncode == 0 and done.stdout == ""
    assert re.sub(r"in .*", "in a while", done.stderr) == "12 of 12 jobs in a while\nthe answer, in a while\n"
    again = run(toy())
    assert again.returncode == 0
    assert again.stderr == "Nothing to be done: all that was asked for is there.\nthe answer, in results/toy\n"


def test_an_error_is_told_once_and_no_answer_follows(toy):
    done = run(toy("--keep-going", "--show-failed-logs", table="exit 3"))
    assert done.returncode == 1
    error, stopped = done.stderr.splitlines()
    assert error == "error: no such table", "the line of three jobs"
    assert stopped.startswith("Stopped: 7 of 9 jobs (3 failed) in ")


def test_what_a_job_does_not_say_itself_snakemake_says(toy):
    done = run(toy(work="exit 3", jobs=1))
    assert done.returncode == 1 and "Error in rule measure:" in done.stderr and "exit status 3" in done.stderr
    broken = run(toy(jobs="many"))
    assert broken.returncode == 1 and "TypeError" in broken.stderr and "the answer" not in broken.stderr


@pytest.mark.parametrize("options", [["--dry-run", "--quiet", "host"], ["--unlock"], ["--quiet", "all"]])
def test_a_dry_run_and_what_runs_nothing_are_snakemake_s_own_word_for_word(toy, options):
    ours, own = (run(toy(*options, plugin=plugin)) for plugin in (True, False))
    said = [re.sub(r"\[.* 20\d\d\]", "[]", each.stdout + each.stderr) for each in (ours, own)]
    assert ours.returncode == 0 and said[0] == said[1] and bool(said[0]) == ("all" not in options)


def test_a_dry_run_says_which_of_its_jobs_are_only_looked_at(toy, tmp_path):
    assert run(toy()).returncode == 0
    (tmp_path / "record/2").unlink()
    said = run(toy("--dry-run", "record/2", "all")).stderr.splitlines()
    # a record and the checkpoint; then the page; `all` runs nothing
    assert said[-1] == (
        "Of these 3 jobs 2 are sure to run. The others are looked at again after choose_clocks, and run only if that "
        "gives other bytes."
    )
    (tmp_path / "page").unlink()
    said = run(toy("--dry-run", "record/2", "all")).stderr.splitlines()
    assert not any(line.startswith("Of these") for line in said), "a page that is gone is made whatever comes of it"
    assert run(toy("--dry-run", "--quiet", "all")).stderr == ""


def test_a_terminal_has_one_line_that_is_rewritten(toy, tmp_path):
    ours, theirs = pty.openpty()
    waiting = toy(jobs=4, work="until [ -e go ]; do sleep 0.1; done")
    with subprocess.Popen(**waiting, stdin=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while part := read(ours):
            seen += part
            if b"0 of 7 jobs in " in seen:
                (tmp_path / "go").touch()
    os.close(ours)
    assert process.returncode == 0
    first, *rest = seen.decode().replace("\r\n", "\n").split("\n")
    assert rest == ["the answer, in results/toy", ""]
    # the first row was written over and over
    *written, last = first.split("\r\x1b[K")
    assert last.startswith("10 of 10 jobs in ") and any(row.endswith(", now measure  ") for row in written)
    counts = [int(match[1]) for row in written if (match := re.match(r"(\d+) of \d+ jobs", row))]
    assert counts[0] == 0 and counts == sorted(counts)


def read(terminal) -> bytes:
    """What a terminal shows next; nothing when its other end is closed."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


@pytest.mark.parametrize("by", ["Ctrl-C", "SIGTERM"])
def test_a_run_that_is_stopped_says_how_to_go_on(toy, tmp_path, by):
    work = "sleep 0.1" if by == "Ctrl-C" else "sleep 2"
    slow, log = toy(jobs=400, work=work), tmp_path / "log.txt"
    process = forked.start("snakemake", slow["args"][3:], tmp_path, log, slow["env"])
    try:
        deadline = time.monotonic() + 60
        # two jobs run at a time: of three records one is whole
        records = 3 if by == "Ctrl-C" else 0
        while len(list(tmp_path.glob("record/*"))) < records or not (tmp_path / "record").is_dir():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if by == "Ctrl-C":  # as a terminal does: the signal goes to Snakemake and to the jobs that it runs
            os.killpg(process.pid, signal.SIGINT)
        else:
            # while both jobs sleep: Snakemake 9.27 takes a lock for SIGTERM that it holds itself as a job ends
            time.sleep(0.5)
            process.terminate()
        process.join(60)
    finally:
        process.kill()
    *errors, stopped = log.read_text().splitlines()
    assert process.exitcode == 1
    assert re.fullmatch(r"Stopped: \d+ of 403 jobs in .*; the same command goes on.", stopped)
    assert errors == ([] if by == "Ctrl-C" else ["WorkflowError:", "At least one job did not complete successfully."])
    planned = run(toy("--dry-run", "--quiet", "rules", "--rerun-incomplete", jobs=400, work=work)).stdout
    assert int(re.search(r"^measure +(\d+)$", planned, re.M)[1]) < 400
