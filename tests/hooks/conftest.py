"""Fake boards beside which a real library trains, or serves."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from fake import Boards
from known_board import TRAIN
from laboratory import Lab


@pytest.fixture
def lab(fake_library, tmp_path, config):
    """`lab(profiles)`: a laboratory on real time, its boards half loaded; what it has started is ended."""
    made = []

    def make(profiles="h200", **knobs):
        boards = Boards(
            fake_library, tmp_path / "boards.state", profiles, **({"time": "real", "utilisation": 0.5} | knobs)
        )
        made.append(Lab(boards, tmp_path / "work", config()))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def library():
    """`library("lightning")`: skips the test where that is not installed; CI installs all of them by night."""

    def needed(name):
        if any(importlib.util.find_spec(each) is None for each in ("torch", name.partition(".")[0])):
            pytest.skip(f"{name} is not installed: pip install 'kernel-dvfs[hooks]'")

    return needed


@pytest.fixture
def trained():
    """`trained(made, "lightning", steps, **environment)`: rows of its log with energy, and what it said."""

    def train(made, *words, ranks=1, **environment):
        # a batch system's or a launcher's variables make some libraries look for ranks of theirs
        own = {key: value for key, value in made.environment().items() if not key.startswith(("SLURM_", "MASTER_"))}
        running = []
        for rank in range(ranks):
            among = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "BOARD": str(rank)}
            among |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
            running.append(
                subprocess.Popen(
                    [sys.executable, TRAIN, *map(str, words)],
                    env=own | (among if ranks > 1 else {}) | environment,
                    cwd=made.folder,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
            )
        made.begun.extend(running)
        said = [process.communicate(timeout=300)[1] for process in running]
        assert not any(process.returncode for process in running), said
        rows = [json.loads(line) for line in (made.folder / "log.jsonl").read_text().splitlines()]
        return rows, "".join(said)

    return train
