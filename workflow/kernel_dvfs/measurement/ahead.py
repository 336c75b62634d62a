"""Points of a simulated GPU measured ahead of their jobs, all in one process: half a millisecond each, where a process
of its own takes twenty.

A job that finds its record ready moves it into place; one that does not measures as ever. The record is the same
bytes either way, and stays a target of its own.
"""

import os
import shutil
import subprocess
import sys

from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement import record, target
from kernel_dvfs.measurement.campaign import open_bench

# where records wait for their jobs, under the names that they will have; the rule `measure` knows it as well
FOLDER = ".snakemake/kernel-dvfs-ahead"
# fewer are as quick by themselves
LEAST = 50


class Ahead:
    """A process that measures ahead from `start` to `stop`. What it leaves is of no use to any other run."""

    def __init__(self):
        self._process = None

    def start(self, setup: str, points: list) -> None:
        """setup: a setup's file; points: [(target, label of the pair, campaign, repeat, path of the record)]."""
        shutil.rmtree(FOLDER, ignore_errors=True)
        if len(points) < LEAST:
            return
        words = [sys.executable, "-S", "-m", "kernel_dvfs", "ahead", "--gpu", setup]
        # of its own session: Ctrl-C is for the run, which stops it
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        try:
            with self._process.stdin as lines:
                # target by target, so that each is prepared once
                for point in sorted(points):
                    lines.write(" ".join(map(str, point)) + "\n")
        except BrokenPipeError:
            pass  # its jobs will say what is wrong

    def stop(self) -> None:
        if self._process is None:
            return  # the folder may be another run's, of another GPU
        self._process.kill()
        self._process.wait()
        self._process = None
        shutil.rmtree(FOLDER, ignore_errors=True)


def measure(setup, path: str, lines) -> None:
    """Write the records that `lines`, `target clocks campaign repeat path` each, ask for into FOLDER.

    Raises InputError.
    """
    known, bench = None, None
    # all of them first: who sends them has something else to do
    for line in list(lines):
        name, clocks, campaign, repeat, output = line.rstrip("\n").split(" ", 4)
        if name != known:
            known, what = name, target.parse(setup, name)
            bench = open_bench(setup, path, what)
        point = bench.point(parse(clocks, "-"), campaign, int(repeat))
        record.write_point(os.path.join(FOLDER, output), setup, bench, what, campaign, int(repeat), point)
