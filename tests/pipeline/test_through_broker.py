"""A plan followed by a program without rights: its clocks go through the broker, and come back however it ends."""

import json
import signal
import subprocess
import sys

import pytest
from fake import Boards
from laboratory import Lab
from made_up import BLOCKING_W, settings

from kernel_dvfs.measurement.latency_file import Spread
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.reach import reachable
from kernel_dvfs_pipeline.spreads import Spreads
from kernel_dvfs_pipeline.stage_profile import StageProfile

KNOWN = Spreads(Spread(0.002, 0.004), Spread(0.002, 0.004), "made up")
CORE_MHZ = (1980, 1740, 1500, 1290, 1080)
# the only rank of a pipeline of one stage: it sleeps as long as its operations take, and says what it saw at the end
RANK = """
import json, sys, time
from kernel_dvfs_deploy.guarded_control import GuardedControl
from kernel_dvfs_pipeline.executor import Executor, HostMarks
from kernel_dvfs_pipeline.following import following, read_played
plan, uuid, iterations, waits = read_played("plan.json"), sys.argv[1], int(sys.argv[2]), "wait" in sys.argv
with GuardedControl(uuid, False, print, through="broker") as control:
    control.preflight(True, print)
    executor = Executor(plan, 0, control, HostMarks(), lambda own: [own], blocks=0, look_every=0)
    with executor:
        for _ in range(iterations):
            with executor.iteration():
                for work in following(plan, 0).works:
                    executor.begin(work)
                    time.sleep(0.03)
                    executor.end()
            print("iterated", control.through, flush=True)
            if waits:
                sys.stdin.readline()
                waits = False
        executor.settle()
    told = executor.certificate
print(json.dumps([executor.surprise, told.asked, told.changes, told.restored, told.plans]), flush=True)
"""


@pytest.fixture
def made(fake_library, tmp_path, config):
    """A laboratory of two boards whose clocks the broker alone may set, with a plan to follow."""
    boards = Boards(fake_library, tmp_path / "boards.state", "h200,h200", time="real", utilisation=0.5)
    own = Lab(boards, tmp_path / "work", config())
    own.offer("broker")
    ratio = [CORE_MHZ[0] / each for each in CORE_MHZ]
    profile = StageProfile(
        {
            (0, name): settings(
                CORE_MHZ, [size * (0.3 + 0.7 * r) for r in ratio], [size * (90 + 410 / r**2) for r in ratio]
            )
            for name, size in (("forward", 0.031), ("backward", 0.047))
        },
        "made up",
    )
    planner = Planner(profile, pipeline_graph("1f1b", 1, 3), BLOCKING_W)
    # forward passes slower, backward passes faster: clocks change between them
    plan = planner.plan(1.18 * planner.frontier.time_s[-1])
    document = reachable(planner, plan, KNOWN).document() | {"latency": KNOWN.document()}
    (own.folder / "plan.json").write_text(json.dumps(document))
    yield own
    own.end()


def rank(made, board, iterations, *more):
    """A rank; "wait": after its first iteration, for a line."""
    words = [RANK, made.boards.get("uuid", board), iterations, *more]
    return made.start(sys.executable, "-c", *words, stdin=subprocess.PIPE)


def locked(made, board):
    return made.boards.get("core_lock", board)


def test_a_plan_is_followed_through_the_broker_on_the_board_of_its_rank_alone(made):
    process = rank(made, 1, 4)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    surprise, asked, changes, restored, plans = json.loads(out.splitlines()[-1])
    # the clocks of the first iteration, a change for each of the others' operations, and none left behind
    assert surprise == "" and restored and plans == 1 and asked == 4 * changes > 4
    assert out.count("iterated broker") == 4
    assert int(made.boards.get("changes", 1)) >= asked and locked(made, 1) == "none"
    assert int(made.boards.get("changes", 0)) == 0, "the other board is another rank's"


def test_clocks_come_back_where_a_rank_is_killed_while_its_plan_is_in_force(made):
    process = rank(made, 0, 1000)
    assert process.stdout.readline() == "iterated broker\n", process.stderr.read()
    assert made.comes_to(lambda: locked(made, 0) != "none")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert made.restored()


def test_a_training_runs_on_at_auto_where_the_broker_ends(made):
    process = rank(made, 0, 12, "wait")
    assert process.stdout.readline() == "iterated broker\n", process.stderr.read()
    made.end_daemons()
    out, error = process.communicate("go on\n", timeout=120)
    assert out.count("iterated broker") == 11, (out, error)
    assert made.comes_to(lambda: locked(made, 0) == "none")
    surprise = json.loads(out.splitlines()[-1])[0]
    assert process.returncode == 0 and "the broker has closed the connection" in surprise, (surprise, error)
