"""Slurm's commands, as far as a study needs them. Works on clusters without accounting; knows no measurements."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kernel_dvfs_clocks.environment import SLURM
from kernel_dvfs_clocks.errors import InputError

LOGS = "logs/slurm"
# states of a job: it waits for its node, it waits or runs, and it ends: its processes are gone or are being killed, and
# its node is being cleaned up
WAITS = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING")
ALIVE = (*WAITS, "RUNNING", "SUSPENDED", "STAGE_OUT")
ENDS = "COMPLETING"
# somebody has ended it; a time limit, a dead node and a job of higher priority have names of their own
CANCELLED = "CANCELLED"
# to end a job Slurm takes KillWait (30 s as shipped) and the site's epilog
ENDING_S = 300.0
_REMEDY = (
    "edit slurm_gpu in profiles/slurm/site.yaml, slurm_cpu in profiles/slurm/profile.yaml (sinfo -o '%P %G' lists "
    "partitions and GPUs)"
)


def check(options: str, what: str) -> None:
    """Let Slurm judge a job's options without submitting it. Raises InputError."""
    done = _run(["sbatch", "--test-only", *shlex.split(options), "--wrap=true"], f"{what} = '{options}'")
    if done.returncode:
        raise InputError(f"Slurm refuses {what} = '{options}': {_said(done)}; {_REMEDY}")


def submit(options: str, name: str, command: list[str]) -> str:
    """Submit a job that runs `command` in this folder; returns its id. Raises InputError."""
    os.makedirs(LOGS, exist_ok=True)
    # Slurm must not restart it after a node has died: the next job that needs it submits another
    words = [
        "sbatch",
        "--parsable",
        "--no-requeue",
        f"--job-name={name}",
        f"--output={LOGS}/%x-%j.log",
        *shlex.split(options),
    ]
    # in a step: Slurm sends SIGTERM to the steps of a cancelled job, and --gpu-freq applies to steps
    done = _run([*words, f"--wrap=exec srun --ntasks=1 {shlex.join(command)}"], f"'{options}'")
    if done.returncode:
        raise InputError(f"Slurm refuses the job {name} with '{options}': {_said(done)}; {_REMEDY}")
    return done.stdout.strip().partition(";")[0]


def status(job: str) -> dict[str, str]:
    """Return the fields of a job as scontrol names them (JobState, Reason, BatchHost); {} where Slurm has forgotten it.

    Raises InputError where Slurm does not answer.
    """
    done = _run(["scontrol", "--oneliner", "show", "job", job], f"job {job}")
    if done.returncode:
        if "Invalid job id" in done.stderr:
            return {}
        raise InputError(f"Slurm does not answer about job {job}: {_said(done)}")
    return dict(re.findall(r"(\w+)=(\S*)", done.stdout))


def cancel(job: str) -> None:
    """Cancel a job; nothing happens where it has ended. Raises InputError where there is no scancel."""
    _run(["scancel", job], f"job {job}")


def end(job: str, look_every_s: float) -> None:
    """Cancel a job and wait until it has left its node. Raises InputError where it does not leave it in ENDING_S."""
    if status(job).get("JobState") in (*ALIVE, ENDS):
        cancel(job)
        left(job, look_every_s)


def left(job: str, look_every_s: float) -> str:
    """Wait until a job that is about to end has left its node: its last state, as `settled`."""
    return _no_more(job, (*ALIVE, ENDS), look_every_s)


def settled(job: str, look_every_s: float) -> str:
    """Return a job's state; of one whose node is being cleaned up, the one that comes of it. "" where Slurm has
    forgotten it.

    Raises InputError where it does not leave its node in ENDING_S.
    """
    return _no_more(job, (ENDS,), look_every_s)


def _no_more(job: str, states: tuple[str, ...], look_every_s: float) -> str:
    end_s = time.monotonic() + ENDING_S
    while (state := status(job).get("JobState", "")) in states:
        if time.monotonic() > end_s:
            raise InputError(
                f"Slurm job {job} is still {state} {ENDING_S:g} s after it was to end, so its node may be stuck, with "
                f"clocks locked; ask who runs the cluster (scontrol show job {job})"
            )
        time.sleep(look_every_s)
    return state


@contextmanager
def cancelled_on_failure(job: str) -> Iterator[None]:
    """Whatever ends the waiting for a job, SIGTERM and SIGHUP too, cancels the job: nobody else would."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except BaseException:
        cancel(job)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def inside(job: str, command: list[str], text: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a step of its own in a running job, with `text` on its standard input."""
    words = ["srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", "--gres=none", "--quiet"]
    return _run([*words, *command], f"job {job}", text)


def _run(words: list[str], about: str, text: str = "") -> subprocess.CompletedProcess[str]:
    # where this run is itself a job, Slurm would take the variables of that job for options
    keep = {key: value for key, value in os.environ.items() if not re.match("SLURM_(?!CONF)", key) and key != SLURM}
    try:
        return subprocess.run(words, input=text, capture_output=True, text=True, env=keep)
    except FileNotFoundError:
        raise InputError(
            f"{words[0]} is not on PATH, so Slurm cannot be asked for {about}; run this on a login node of the "
            "cluster, or without --profile profiles/slurm"
        ) from None


def _said(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["no reason"]
    return re.sub(r"^\w+: (error: )?", "", lines[-1])
