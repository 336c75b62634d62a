"""Iteration schedules played on boards of the fake NVML, whose launches run the simulated GPU's model: what was chosen
is what comes about, and whatever else happens ends at auto."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from kernel_dvfs.measurement.setup import read as read_setup
from kernel_dvfs.measurement.setup import store
from kernel_dvfs.profile import aggregate
from kernel_dvfs_clocks.clocks import sweep_pairs
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_json
from kernel_dvfs_deploy.player import Player, Tolerance
from kernel_dvfs_deploy.sequence.changes import Timing
from kernel_dvfs_deploy.sequence.launches import read_sequence
from kernel_dvfs_deploy.sequence.programme import choose_changes
from kernel_dvfs_deploy.sequence.schedule import IterationSchedule, iteration_schedule, read_iteration

HERE = Path(__file__).resolve().parent
LATENCY_S = 0.005
# clocks that this board delivers to every kernel: below its power cap
GRID = {"core_mhz": [1050, 1260, 1470], "mem_mhz": [5001, 9251], "auto": True}


@pytest.fixture(scope="session")
def chosen(setup_of, tmp_path_factory, earlier_board):
    """(path of the setup, {(latency, jitter): iteration schedule}): a small model on the simulated RTX 3080 Ti."""
    folder = tmp_path_factory.mktemp("chosen")
    setup = setup_of(model="gpt3-125m", batch=16, gpu_overrides=earlier_board)
    # without what the fake board does not do: grow warmer, lower its top clock by power, hunt at its cap, draw more at
    # auto, keep light loads at a lower clock
    spec = setup.gpu["spec"]
    governor = spec["governor"] | {"hunting_mhz": 0, "auto_extra_power": 0, "auto_light_load_core_mhz": None}
    clocks = spec["clocks"] | {"top": {"above_auto_mhz": 0, "mhz_per_w": 0, "above_w": 0}}
    thermal = spec["thermal"] | {"ambient_c": 55, "c_per_w": 0}
    spec |= {"governor": governor, "clocks": clocks, "thermal": thermal}
    setup = setup._replace(gpu=setup.gpu | {"spec": spec})
    path = store(str(folder), setup.gpu, setup.workload, setup.targets, setup.measurement)
    setup = read_setup(path)
    pairs, _ = sweep_pairs(setup.gpu["spec"]["clocks"], GRID)
    aggregate.from_bench(setup, pairs, 10, str(folder / "p.parquet"), ("kernel",))
    read = read_sequence(folder / "p.parquet")

    @cache
    def text(latency_s=LATENCY_S, jitter=0.0, behaviour="ahead", stall_s=(0.0, 0.0)):
        timing = Timing(behaviour, latency_s, jitter, *stall_s)
        choice = choose_changes(read.sequence, timing, 0.01)
        sources = {"latency": "assumed", "stalls": "assumed"}
        return json.dumps(iteration_schedule(read, timing, choice, 1.0, "least power", sources))

    # a new one each time, since tests break it
    return path, lambda **about: json.loads(text(**about))


@pytest.fixture
def play(lab, chosen, earlier_board):
    """`play(schedule, **told)`: (what came of it, the laboratory)."""
    setup, schedule = chosen

    def run(content=None, made=None, **told):
        made = made or lab("rtx_3080_ti", time="virtual", utilisation=0, limit_mw=345000)
        content = dict(content or schedule())
        content["gpu"] = {"kind": "nvml", "name": "fake", "slug": slug_of(made)}
        write_json(made.folder / "it.json", content)
        told = {"uuid": made.boards.uuid, "schedule": str(made.folder / "it.json"), "setup": str(setup)} | told
        told = {"iterations": 1, "latency_s": LATENCY_S} | told
        done = subprocess.run(
            [sys.executable, str(HERE / "play.py"), json.dumps(told)],
            env=made.environment(PYTHONPATH=str(HERE.parent / "fakenvml"), FAKE_FIGURES=json.dumps(earlier_board)),
            cwd=made.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        came = json.loads(done.stdout) if done.stdout else None
        return came, made, done

    return run


def test_a_change_that_lands_late_now_and_then_is_borne_and_one_after_the_other_is_not(play, chosen):
    """Latencies are distributions here, of which a change is waited for 1.2 times the median at most."""
    content = chosen[1]()
    spread = {"median_s": LATENCY_S, "p99_s": 1.3 * LATENCY_S}
    content["switching"] |= {"core": spread, "mem": spread}
    assert content["change_count"] > 4
    came, made, done = play(content, jitter=0.5, iterations=2)
    assert came, done.stderr
    asked, surprise, finished = came["log"]
    missed = [reached_s is None for _, _, _, _, _, reached_s, *_ in asked]
    assert any(missed) and not all(missed) and surprise is None and finished, surprise
    came, made, done = play(content, latency_s=60 * LATENCY_S)
    asked, surprise, finished = came["log"]
    locked = [own[5] for own in asked if own[2] != ["auto", "auto"]]
    assert locked == [None] * 5, "one may be late, and the next ones, but not all"
    assert "not reached" in surprise and not finished and made.restored()


def slug_of(made) -> str:
    return f"simulated-rtx-3080-ti-on-a-fake-nvml-{made.boards.uuid.removeprefix('GPU-')[:8]}"


@pytest.mark.parametrize(
    ("jitter", "stall_s"),
    [pytest.param(0.0, (0.0, 0.0), marks=pytest.mark.nightly), (0.3, (0.0, 0.0)), (0.0, (2e-5, 5e-5))],
)
def test_an_iteration_is_played_as_chosen_and_saves_what_was_promised(play, chosen, jitter, stall_s):
    content = chosen[1](jitter=jitter, stall_s=stall_s)
    assert content["change_count"] > 4 and content["energy_change_percent"] < -1
    came, made, done = play(content, iterations=3, jitter=jitter, stall_s=stall_s)
    assert came, done.stderr
    asked, surprise, finished = came["log"]
    assert surprise is None and finished and made.restored()
    assert len(asked) == 3 * content["change_count"], "all of them, in the first iteration too"
    auto, _, _ = play(content, made, iterations=3, auto=True)
    for key in ("time_s", "energy_j"):
        assert came[key] / 3 == pytest.approx(content[key], rel=0.01)
        # the board's own governor and memory clock at auto are not quite the simulated GPU's
        promised = content[f"{key.partition('_')[0]}_change_percent"] / 100
        assert came[key] / auto[key] - 1 == pytest.approx(promised, abs=0.01)
    for _, launch, pair, due_s, asked_s, reached_s, boundary_s, core_mhz, mem_mhz in asked:
        assert 0 <= asked_s - due_s < 1e-3
        if "auto" not in pair:  # auto may be anything, so it is reached at once
            assert (1 - jitter) * LATENCY_S <= reached_s - asked_s + 1e-3
            assert abs(reached_s - boundary_s) < jitter * LATENCY_S + 3e-3, f"lands at launch {launch}"
        assert pair[0] in ("auto", core_mhz) and pair[1] in ("auto", mem_mhz)


def test_a_lagging_schedule_asks_as_its_launches_begin(play, chosen):
    came, made, done = play(chosen[1](behaviour="lag"))
    asked, surprise, finished = came["log"]
    assert surprise is None and finished and asked, done.stderr
    assert all(abs(own[4] - own[6]) < 1e-3 for own in asked)
    assert made.restored()


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({"latency_s": 0.06}, "not reached"),
        ({"happens": {0.05: "no rights"}}, "no permission"),
        ({"source": {"slower": 1.6}}, " ms, not "),
        ({"source": {"oversleep_s": 0.03}}, "after its time"),
        ({"source": {"ends_s": 0.05}}, "has not come to boundary"),
    ],
)
def test_a_surprise_ends_the_play_at_auto(play, told, named):
    came, made, done = play(iterations=2, **told)
    assert came, done.stderr
    asked, surprise, finished = came["log"]
    assert named in surprise and not finished
    assert made.restored()
    assert len(asked) < 2 * 20, "nothing is asked for any more"


def longest_locked(content) -> tuple[float, float]:
    """(begin s, length s) of the longest stretch at a locked core clock, where no request of ours follows at once."""
    begin_s = [sum(own[2] for own in content["launches"][:launch]) for launch, _ in content["changes"]]
    return max(
        (
            (now, later - now)
            for now, later, (_, pair) in zip(begin_s, begin_s[1:], content["changes"])
            if content["pairs"][pair]["core_mhz"] != "auto"
        ),
        key=lambda stretch: stretch[1],
    )


@pytest.mark.parametrize(
    ("what", "named"), [("foreign lock", "somebody else sets them"), ("heat", "clocks held down (reasons 0x")]
)
def test_clocks_that_are_not_ours_end_the_play_at_auto(play, chosen, what, named):
    latency_s = 0.01  # long, so that a pair is kept for several launches
    content = chosen[1](latency_s=latency_s)
    begin_s, length_s = longest_locked(content)
    assert length_s > latency_s + 0.003
    came, made, _ = play(content, latency_s=latency_s, happens={begin_s + 0.0015: what})
    _, surprise, finished = came["log"]
    assert named in surprise and not finished
    assert made.restored()


class RunDry:
    """Launches of 10 ms each, on simulated time, after which the GPU has nothing to do and lowers its clocks by itself;
    the player's thread is held up before it looks at launch `late_at`. Source and control in one."""

    reads_only, now, pair = False, 0.0, None

    def __init__(self, count, late_at):
        self.passed, self.late_at = [0.01 * number for number in range(count)], late_at

    def now_s(self):
        return self.now

    def sleep_until(self, when_s):
        self.now = max(self.now, when_s)

    def passed_s(self, boundary):
        if boundary == self.late_at:
            self.now = max(self.now, 0.06)
        return self.passed[boundary] if self.passed[boundary] <= self.now else None

    def wait(self, boundary, until_s):
        self.sleep_until(self.passed[boundary])
        return self.passed_s(boundary)

    def is_idle(self):
        return self.now >= self.passed[-1] + 0.01

    def seen(self):
        return (345, 1593) if self.is_idle() else self.pair

    def ask(self, pair):
        self.pair = pair

    def check(self, pair, where):
        pass

    announce = to_auto = lambda self, *told: None
    event_reasons = sm_mhz = lambda self: 0
    board = property(lambda self: self)


@pytest.mark.parametrize("late_at", [0, 1, 2])
def test_a_gpu_that_has_run_dry_before_a_late_player_looked_is_nobody_else_s_doing(late_at):
    stream = RunDry(3, late_at)
    timing = Timing("lag", 0.01)
    pairs = [(1500, 3201), (1200, 3201), (1350, 3201)]
    changes = [(0, 1), (1, 0), (2, 2)]
    iteration = IterationSchedule(
        "it.json", {}, {}, timing, pairs, 2, ["a", "b", "c"], [1, 0, 2], [0.01] * 3, changes, {}
    )
    log = Player(iteration, stream, stream, tolerance=Tolerance(late_s=0.1)).play(1)
    assert (log.surprise, log.finished, len(log.asked)) == (None, True, 3)
    assert [own.reached_s is not None for own in log.asked] == [own.launch < late_at for own in log.asked]


def test_a_player_that_is_killed_leaves_no_clock_locked(play):
    came, made, done = play(happens={0.05: "killed"})
    assert came is None and done.returncode == -9
    assert made.restored()


def test_where_clocks_may_not_be_set_a_player_only_looks(play, lab):
    made = lab("rtx_3080_ti", time="virtual", utilisation=0, deny=1)
    came, _, done = play(None, made, dry=True)
    asked, surprise, finished = came["log"]
    assert surprise is None and finished and asked, done.stderr
    assert made.boards.get("sets") == "0" and not made.lease.exists()


def test_a_schedule_for_another_gpu_is_refused_and_nothing_is_set(play, chosen):
    content = chosen[1]()
    came, made, done = play(content)
    assert came, done.stderr
    path = made.folder / "other.json"
    write_json(path, content)  # of the simulated GPU
    sets = made.boards.get("sets")
    came, _, done = play(content, made, schedule=str(path))
    assert came is None and done.stderr.count("\n") == 1
    slug = content["gpu"]["slug"]
    assert f"schedule {path}: gpu.slug is {slug}, of simulated RTX 3080 Ti, this GPU is" in done.stderr
    assert made.boards.get("sets") == sets


# --- what can be refused without a board ---


class NoBoard:
    """A control that must not be asked for anything."""

    reads_only = False

    def check(self, pair, where):
        pass


def test_a_schedule_for_other_launches_is_refused(chosen, tmp_path):
    from kernel_dvfs_deploy.player import Player

    write_json(tmp_path / "it.json", chosen[1]())
    iteration = read_iteration(tmp_path / "it.json")
    with pytest.raises(InputError, match=r"schedule .*it\.json: launches\[2\] is not .* gpt3-125m-b16-tp1; choose"):
        Player(iteration, NoBoard(), None, launches=[*iteration.names[:2], "another", *iteration.names[3:]])
    with pytest.raises(InputError, match=rf": launches\[{len(iteration.names) - 1}\] is not "):
        Player(iteration, NoBoard(), None, launches=iteration.names[:-1])


def test_a_schedule_that_asks_before_its_iteration_begins_is_refused(chosen, tmp_path):
    from kernel_dvfs_deploy.player import Player

    content = json.loads(json.dumps(chosen[1]()))
    content["changes"][0][0] = 0
    write_json(tmp_path / "it.json", content)
    with pytest.raises(
        InputError, match=r"launches\[0\] wants a change that has to be asked for 5 ms before the iteration begins"
    ):
        Player(read_iteration(tmp_path / "it.json"), NoBoard(), None)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda content: content.pop("changes"), "changes is missing"),
        (
            lambda content: content["switching"].update(latency_s=-1),
            "switching.latency_s is -1, expected a number",
        ),
        (
            lambda content: content["switching"].update(core_stall_s=-1),
            "core_stall_s is -1, expected a number >= 0",
        ),
        (
            lambda content: content["switching"].update(behaviour="soon"),
            "switching.behaviour is 'soon', expected one of lag, ahead",
        ),
        (
            lambda content: content["pairs"][0].update(core_mhz="fast"),
            "core_mhz is 'fast', expected a positive number",
        ),
        (lambda content: content["launches"][3].pop(), "launches[3] is ["),
        (lambda content: content["launches"][3].__setitem__(0, 999), "launches[3] names a kernel or pair"),
        (lambda content: content["changes"].reverse(), "changes[0]: "),
        (lambda content: content["changes"].append([10**6, 0]), "]: launches ascend below "),
        (lambda content: content.update(first=99), "first is 99, which is not among the "),
        (
            lambda content: content.update(schema="kernel-dvfs/schedule/1"),
            "not a kernel-dvfs/iteration-schedule/1",
        ),
    ],
)
def test_a_broken_iteration_schedule_is_refused_by_file_and_field(chosen, tmp_path, change, named):
    content = json.loads(json.dumps(chosen[1]()))
    change(content)
    write_json(tmp_path / "it.json", content)
    with pytest.raises(InputError) as refused:
        read_iteration(tmp_path / "it.json")
    assert str(refused.value).startswith(f"schedule {tmp_path / 'it.json'}: ") and named in str(refused.value)
