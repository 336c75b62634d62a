"""The measuring process of a GPU on a cluster: it runs in a Slurm job that holds the node and is asked through steps of
that job. What `client` is on one machine.

The first measurement job submits the Slurm job and waits in the queue, the others find it in a file. Each session has
a measuring process of its own there too, one after the other in one job, which keeps the node between them. The job
ends with the run, when nobody asks any more, or at its time limit; then the next measurement job submits another. One
that was cancelled by somebody else ends the run: who cancels it does not want it submitted again.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from typing import Annotated, Any, TypedDict, final

from kernel_dvfs import slurm
from kernel_dvfs.measurement.setup import Setup, read
from kernel_dvfs.measurement.window import is_measured
from kernel_dvfs_clocks.clocks import Pair, gpu_freq
from kernel_dvfs_clocks.environment import slurm_gpu
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import compact_json, parse_json, write_json
from kernel_dvfs_clocks.nvml.facts import node_of
from kernel_dvfs_clocks.shape import Is
from kernel_dvfs_clocks.shape import read as read_file

FOLDER = ".snakemake"
_LOOK_EVERY_S = 1.0
_TELL_EVERY_S = 60.0


@final
class _Job(TypedDict):
    """Which job holds a GPU."""

    job: Annotated[str, Is("the number of a job", re.compile(r"\d{1,20}", re.ASCII).fullmatch)]  # no option of scancel
    clocks: str  # the option that asks Slurm for them, or ""


def ask(setup: Setup, path: str, requests: list[dict[str, Any]], pair: Pair) -> list[dict[str, Any]]:
    """Return the answers of the measuring process, of one that ends to the first requests only; none where no process
    runs at the clocks that Slurm has to set for `pair`.

    path: of the setup's file. Raises InputError where the process died while it dealt with a request.
    """
    known = _known(setup.gpu["uuid"])
    if not known:
        return []
    job = known["job"]
    state = slurm.settled(job, _LOOK_EVERY_S / 5)
    if state == slurm.CANCELLED:
        raise _cancelled(job)
    if state not in slurm.ALIVE:
        return []
    if known["clocks"] != _clocks(setup, pair):
        _end(setup, job)
        return []
    # whoever submitted it may have been killed before it had its node: it is ours now
    if failure := _wait_for(setup, job):
        return [failure]
    try:
        answers = _answers(job, path, requests)
    except _Unanswered as unanswered:
        state = slurm.settled(job, _LOOK_EVERY_S / 5) or "gone"
        raise _cancelled(job) if state == slurm.CANCELLED else _lost(job, state, unanswered.request) from None
    # no answer: its process is about to end, and the job with it
    if answers[-1] is None and slurm.left(job, _LOOK_EVERY_S / 5) == slurm.CANCELLED:
        raise _cancelled(job)
    return [answer for answer in answers if answer is not None]


def _answers(job: str, path: str, requests: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """Return the answers of the measuring process in a job, by one step, whose start takes a while; the last is
    None where there is no such process. Raises _Unanswered where one did not come."""
    command = [sys.executable, "-S", "-m", "kernel_dvfs", "measure", "serve", "--gpu", path, "--ask"]
    output = slurm.inside(job, command, "".join(compact_json(request) + "\n" for request in requests)).stdout
    answers = []
    with suppress(ValueError):  # its last line is cut off where it died as it wrote
        for line in output.splitlines():
            answers.append(parse_json(line))
    if not answers or (len(answers) < len(requests) and is_measured(answers[-1])):
        raise _Unanswered(requests[len(answers)])
    return answers


class _Unanswered(Exception):
    """`request` has no answer: its process died."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__()
        self.request = request


def _lost(job: str, state: str, request: dict[str, Any]) -> InputError:
    return InputError(
        f"Slurm job {job} ({state}) was lost during {request['target']}; what is finished stays, run snakemake again; "
        f"see {slurm.LOGS}"
    )


def _cancelled(job: str) -> InputError:
    return InputError(
        f"Slurm job {job}, which holds the GPU, was cancelled, so this run submits no other in its place; what is "
        "finished stays, run snakemake again to go on"
    )


def begin(uuid: str) -> None:
    """Note that a run begins: that a job for this GPU was cancelled in an earlier one does not end this one. Raises
    InputError where that job does not leave its node."""
    known = _known(uuid)
    if known and slurm.settled(known["job"], _LOOK_EVERY_S / 5) == slurm.CANCELLED:
        _forget(uuid)


def start(setup: Setup, path: str, pair: Pair) -> dict[str, Any]:
    """Submit the job and wait until its process listens or has failed. The answer is empty, or has "errors"."""
    clocks = _clocks(setup, pair)
    options = f"{slurm_gpu()} {clocks}"
    node = node_of(setup.gpu["slug"], os.path.join(os.path.dirname(path), "../../.."))
    if node and "--nodelist" not in options and "-w" not in options.split():
        options += f" --nodelist={node}"
    tell = _ready_path(setup)
    os.makedirs(FOLDER, exist_ok=True)
    if os.path.exists(tell):
        os.unlink(tell)
    command = [sys.executable, "-m", "kernel_dvfs", "measure", "serve", "--gpu", path, "--tell", tell]
    job = slurm.submit(options, "kernel-dvfs-gpu", command)
    write_json(_file(setup.gpu["uuid"]), {"job": job, "clocks": clocks})
    return _wait_for(setup, job)


def _wait_for(setup: Setup, job: str) -> dict[str, Any]:
    """Wait until the job's process listens or has failed. The answer is empty, or has "errors"."""
    try:
        with slurm.cancelled_on_failure(job):
            answer = wait(job, _ready_path(setup))
    except BaseException:
        _forget(setup.gpu["uuid"])  # cancelled by ourselves: that is nobody's wish to have no other
        raise
    return {} if answer == ["ok"] else {"errors": answer}


def wait(job: str, tell: str) -> list[str]:
    """Wait for the lines that a job writes into the file `tell`; if it ends without, a line on what became of it."""
    began_s = told_s = time.monotonic()
    while True:
        try:
            with open(tell, encoding="utf-8") as file:
                if lines := file.read().splitlines():
                    return lines
        except FileNotFoundError:
            pass
        now = slurm.status(job)
        state = now.get("JobState", "forgotten")
        if state not in slurm.ALIVE:
            # it may have written just before it ended
            if os.path.exists(tell) and os.path.getsize(tell):
                continue
            return [f"Slurm job {job} ended ({state}) before it could measure; see {slurm.LOGS}"]
        if time.monotonic() - told_s > _TELL_EVERY_S:
            told_s = time.monotonic()
            waited = f"{(told_s - began_s) / 60:.0f} min"
            print(f"waiting for Slurm job {job}: {state} ({now.get('Reason')}), {waited}", file=sys.stderr, flush=True)
        time.sleep(_LOOK_EVERY_S if time.monotonic() - began_s > 5 else _LOOK_EVERY_S / 5)


def tell(path: str, what: str) -> dict[str, Any] | None:
    """Tell the measuring process, if there is one, to "move" or to "renew": to end, and the next runs in the same job.
    Returns its answer."""
    known = _known(read(path).gpu["uuid"])
    if known and slurm.status(known["job"]).get("JobState") == "RUNNING":
        # where it is ended from elsewhere, the next request tells why
        with suppress(_Unanswered):
            return _answers(known["job"], path, [{"do": what}])[0]
    return None


def stop(path: str) -> None:
    """End the job of a setup's GPU, if there is one; returns when its clocks are restored."""
    setup = read(path)
    known = _known(setup.gpu["uuid"])
    if known:
        _end(setup, known["job"])


def _end(setup: Setup, job: str) -> None:
    # SIGTERM to its step: the process restores the clocks and leaves
    slurm.end(job, _LOOK_EVERY_S / 5)
    _forget(setup.gpu["uuid"])


def _forget(uuid: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_file(uuid))


def _clocks(setup: Setup, pair: Pair) -> str:
    """Return the option that asks Slurm for the pair, where Slurm sets the clocks (one job a pair); else ""."""
    return gpu_freq(pair) if setup.measurement["clocks"] == "external" else ""


def _known(uuid: str) -> _Job | None:
    try:
        return read_file(_file(uuid), _Job, "", "start another job")
    except InputError:
        return None  # none, or none of ours


def _ready_path(setup: Setup) -> str:
    """Return the file in which the job's process says that it listens, or why it does not."""
    return f"{FOLDER}/kernel-dvfs-{setup.gpu['uuid']}.said"


def _file(uuid: str) -> str:
    return f"{FOLDER}/kernel-dvfs-{uuid}.job.json"
