"""A small workflow run by Snakemake itself with the plugin: in a log, on a terminal, failing, stopped."""

import os
import pty
import re
import signal
import subprocess
import sys
import time

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
    env |= {"PYTHONPATH": str(root / "workflow"), "TERM": "xterm", "PYTHONHASHSEED": "0"}

    def command(*options, plugin=True, **config):
        words = [sys.executable, "-m", "snakemake", "--cores", "2", "--scheduler", "greedy", "--nolock", *options]
        words += ["--logger=kernel-dvfs"] * plugin
        if config:
            words += ["--config", *(f"{key}={value}" for key, value in config.items())]
        return {"args": words, "cwd": tmp_path, "env": env}

    return command


def run(command):
    return subprocess.run(**command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def test_a_log_has_two_lines_a_stage_and_ends_with_the_answer(toy):
    done = run(toy())
    assert done.returncode == 0 and done.stdout == ""
    assert [re.sub(r"in .*", "in a while", line) for line in done.stderr.splitlines()] == [
        "measure: begins, 6 jobs",
        "measure: done, 6 jobs in a while",
        "choose: begins, 1 job",
        "choose: done, 1 job in a while",
        "tables: begins, 1 job",
        "tables: done, 3 jobs in a while",
        "report: begins, 1 job",
        "report: done, 1 job in a while",
        "the answer, in a while",
    ]
    again = run(toy())
    assert again.returncode == 0
    assert again.stderr.splitlines() == [
        "Nothing to be done: all that was asked for is there.",
        "the answer, in results/toy",
    ]


def test_an_error_is_told_once_for_each_job_and_no_answer_follows(toy):
    done = run(toy("--keep-going", "--show-failed-logs", table="exit 3"))
    assert done.returncode == 1
    assert done.stderr.count("error: rule table_x failed") == 3
    assert done.stderr.count("    error: no such table\n") == 3
    assert "RuleException" not in done.stderr and "the answer" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("measure 6 of 6 · choose 1 of 1 · tables 0 of 3 (3 failed) · report")


def test_a_dry_run_is_snakemake_s_own_word_for_word(toy):
    ours, own = (run(toy("--dry-run", "--quiet", "host", plugin=plugin)) for plugin in (True, False))
    without_times = [re.sub(r"\[.* 20\d\d\]", "[]", each.stdout) for each in (ours, own)]
    assert ours.returncode == 0 and "Job stats:\n" in ours.stdout and "reason: Missing output" in ours.stdout
    assert without_times[0] == without_times[1] and ours.stderr == own.stderr


def test_quiet_is_silence_and_what_runs_nothing_speaks_as_before(toy):
    assert run(toy("--quiet", "all")).stderr == ""
    ours, own = (run(toy("--unlock", plugin=plugin)) for plugin in (True, False))
    assert (ours.stdout, ours.stderr) == (own.stdout, own.stderr) and "Unlocked" in ours.stderr


def test_a_terminal_has_one_line_that_is_rewritten(toy, tmp_path):
    ours, theirs = pty.openpty()
    waiting = toy(jobs=4, work="until [ -e go ]; do sleep 0.1; done")
    with subprocess.Popen(**waiting, stdin=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while part := read(ours):
            seen += part
            if "measure 0 of 4 · choose 0 of 1 · report 0 of 1".encode() in seen:
                (tmp_path / "go").touch()
    os.close(ours)
    assert process.returncode == 0
    first, second, rest = seen.decode().replace("\r\n", "\n").split("\n")
    # the first row was written over and over
    written = first.split("\r\x1b[K")
    assert written[-1].startswith("measure 4 of 4 · choose 1 of 1 · tables 3 of 3 · report 1 of 1")
    counts = [int(match[1]) for row in written if (match := re.match(r"measure (\d) of 4", row))]
    assert counts[0] == 0 and counts[-1] == 4 and counts == sorted(counts)
    assert (second, rest) == ("the answer, in results/toy", "")


def read(terminal) -> bytes:
    """What a terminal shows next; nothing when its other end is closed."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_ctrl_c_stops_with_one_line_and_the_same_command_goes_on(toy, tmp_path):
    slow = toy(jobs=400, work="sleep 0.3")
    # as a terminal does: the signal goes to Snakemake and to the jobs that it runs
    with subprocess.Popen(**slow, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        deadline = time.monotonic() + 60
        # two jobs run at a time: of three records one is whole
        while len(list(tmp_path.glob("record/*"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    lines = said.splitlines()
    assert process.returncode == 1
    assert lines[0] == "measure: begins, 400 jobs" and lines[1].startswith("measure ")
    assert lines[2:] == ["Stopped. What was measured stays; the same command goes on."]
    planned = run(toy("--dry-run", "--quiet", "rules", "--rerun-incomplete", jobs=400, work="sleep 0.3")).stdout
    assert int(re.search(r"^measure +(\d+)$", planned, re.M)[1]) < 400
