"""A captured step played on a board of the fake NVML: cut where clocks change, certified on itself, back at auto
whatever happens. The stream of kernels is a simulation in real time; nothing here says what a real GPU does."""

import json
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from fake import Boards
from laboratory import Lab
from whole_schedule import whole_schedule

from experiments.benchmarks import gpu_play
from kernel_dvfs.measurement.setup import content
from kernel_dvfs.workload.step import read, write
from kernel_dvfs.workload.step_workload import of_step
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_json
from kernel_dvfs_deploy import playing
from kernel_dvfs_deploy.playing import cut, iteration_of, measured_block, play, record_of

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "real"))

from test_faults_of_boards import REFUSED, each_fault  # noqa: E402 - of another folder of tests

RECORD = HERE.parent / "workload/steps/hand_made.json"
FORWARD, BACKWARD, OPTIMISER = (1200, 3201), (1500, 3201), (1350, 2201)
PASSES = {"forward": FORWARD, "backward": BACKWARD, "optimiser": OPTIMISER}
QUICK = {"repeats": 2, "block_s": 0.5, "latency_s": 0.1}
ONCE = QUICK | {"repeats": 1}  # where its numbers are not asked for
SLOWER = 100.0
# one pair for the whole run
_PAIR = dict(zip(("core_mhz", "mem_mhz"), BACKWARD))
SINGLE = {"granularity": "kernel", "scope": "single", "targets": {"gelu_forward": _PAIR, "gelu_backward": _PAIR}}
# without a power cap that would act, with changes that a loaded machine keeps up with, and with a counter that moves
# often: blocks are as short as it allows
BOARD = {"time": "real", "utilisation": 0, "limit_mw": 2_000_000, "core_lag_ms": 3, "mem_lag_ms": 3, "period_ms": 20}


def schedule_of(step, slug, granularity="pass", **more):
    """A schedule of this step on a GPU, as `choose` writes one."""
    targets = {name: dict(zip(("core_mhz", "mem_mhz"), pair)) for name, pair in PASSES.items()}
    return (
        whole_schedule(
            gpu={"kind": "nvml", "name": "fake", "slug": slug},
            workload={"name": "step-hand_made", "step": {"file": "step.json", "checksum": step.checksum}},
            granularity=granularity,
            slack_percent=60,
            targets=targets,
        )
        | more
    )


def begun(made, content_of=None, figures=None, **told):
    """A process that plays a schedule of the step beside this laboratory's board. figures: of its spec, other ones."""
    step = read(RECORD)
    # as slow as the simulated stream
    targets = tuple(replace(each, time_us=SLOWER * each.time_us) for each in step.targets)
    step = replace(step, device=step.device | {"uuid": made.boards.uuid}, targets=targets)
    write(made.folder / "step.json", step)
    workload = of_step(step, "step-hand_made", "step.json", "train.py:make")
    about = {"kind": "nvml", "slug": "fake", "name": "fake"}
    digest, text = content(about, workload.about, workload.targets, {"warmup_s": 0})
    (made.folder / f"{digest}.json").write_text(text)
    slug = f"simulated-h200-on-a-fake-nvml-{made.boards.uuid.removeprefix('GPU-')[:8]}"
    schedule = schedule_of(step, slug)
    write_json(made.folder / "schedule.json", content_of(schedule) if content_of else schedule)
    files = {"step": "step.json", "schedule": "schedule.json", "setup": f"{digest}.json"}
    words = {name: str(made.folder / file) for name, file in files.items()} | {"settings": QUICK, "slower": SLOWER}
    return subprocess.Popen(
        [sys.executable, str(HERE / "play_step.py"), json.dumps(words | told)],
        env=made.environment(PYTHONPATH=str(HERE.parent / "fakenvml"), FAKE_FIGURES=json.dumps(figures or {})),
        cwd=made.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def come_of(made, process):
    """(what came of it, the laboratory, the finished process)."""
    said = process.communicate(timeout=120)
    done = subprocess.CompletedProcess(process.args, process.returncode, *said)
    return json.loads(done.stdout) if done.stdout else None, made, done


@pytest.fixture
def played(lab):
    """`played(schedule=, **told)`: what comes of it, see `come_of`."""

    def run(content_of=None, made=None, **told):
        made = made or lab("h200", **BOARD)
        return come_of(made, begun(made, content_of, **told))

    return run


# so slow that the standing power of a board outweighs what lower clocks save
STANDS_HIGH = {"memory": {"static_w": {"2201": 180, "3201": 200}}}
SLOWEST = {"targets": {name: {"core_mhz": 345, "mem_mhz": 3201} for name in PASSES}, "slack_percent": 2000}
# {name: (knobs of the board, what else the schedule says, what is told)}
UNUSED = {
    "no right": ({"deny": 1}, {}, {"settings": ONCE | {"dry_run": True}}),
    "other bits": ({}, {}, {"settings": ONCE, "steps": 12, "forgets": True}),
    "nothing saved": ({}, SLOWEST, {"figures": STANDS_HIGH}),
    "clocks that are not obeyed": ({"ignore": "core,mem"}, SINGLE, {"steps": 12, "slower": 10.0}),
    "a counter off by a factor": ({"counter_factor": 4}, SINGLE, {"steps": 12, "slower": 10.0}),
    # past what comes before the certificate, which takes 80 reads at most
    "a counter that fails": ({"fail": "nvmlDeviceGetTotalEnergyConsumption:999:110"}, {}, {"steps": 12}),
}


@pytest.fixture(scope="module")
def unused(fake_library, tmp_path_factory, config):
    """{name: what comes of one of UNUSED}, whose certificate does not hold whatever else the machine does. Each takes
    long, and mostly waits: all run at once, and no other test of this file beside them."""
    running = {}
    for name, (knobs, changed, told) in UNUSED.items():
        folder = tmp_path_factory.mktemp("play")
        made = Lab(Boards(fake_library, folder / "boards.state", **BOARD, **knobs), folder / "work", config())
        running[name] = made, begun(made, lambda schedule, changed=changed: schedule | changed, **told)
    return {name: come_of(*own) for name, own in running.items()}


def test_sections_run_at_their_clocks_and_the_step_is_certified_on_itself(played):
    came, made, done = played(steps=6)
    assert came, done.stderr
    certificate = came["certificate"]
    assert certificate["same_bits"] is True and certificate["pieces"] == 3 and certificate["changes"] == 3
    assert certificate["holds"], certificate["said"]
    assert certificate["energy"] < -3 and certificate["time"] > 3, "lower clocks: less energy, more time"
    seen = {name: [(core, mem) for own, core, mem in came["ran"] if own == name] for name, _, _ in came["ran"]}
    # asked for as a section begins, so its last kernel has its clocks, unless a loaded machine woke the player too late
    late = {"gelu_forward": FORWARD, "gelu_backward": BACKWARD}
    for name, pair in late.items():
        assert any(clocks == pytest.approx(pair, abs=16) for clocks in seen[name]), name
    assert came["log"][1:] == [None, True] and came["log"][0] >= 3 * 5
    assert came["restored"] and not came["copy_kept"], "the certificate's copy of the state is freed"
    assert made.restored() and int(made.boards.get("sets")) > 10


def test_one_pair_for_the_whole_run_is_locked_and_nothing_piles_up(played):
    came, made, done = played(
        lambda schedule: schedule | SINGLE, settings=QUICK | {"repeats": 0}, steps=12, slower=10.0
    )
    assert came and came["log"][1:] == [None, True], done.stderr
    # the step is whole; the first kernels may run before the clocks have come
    assert {(core, mem) for _, core, mem in came["ran"][-11:]} == {BACKWARD}
    assert came["waiting"] == 0 and made.restored()


def test_a_step_in_pieces_launches_every_node_once_and_in_order():
    step = read(RECORD)

    class Noted:
        def piece(self, nodes):
            return list(nodes)

        def whole(self):
            return list(range(len(step.nodes)))

    for at in ([0], [0, 3], [0, 1, 5, 6]):
        pieces = cut(Noted(), step, at)
        assert [launch for launch, _ in pieces] == at
        assert [node for _, nodes in pieces for node in nodes] == list(range(len(step.nodes)))


def test_hardware_that_may_not_be_set_is_cut_and_left_alone(unused):
    came, made, done = unused["no right"]
    assert came, done.stderr
    certificate = came["certificate"]
    assert certificate["same_bits"] is True and not certificate["holds"] and not certificate["why"]
    assert "dry run, nothing set" in certificate["said"]
    assert made.boards.get("sets") == "0" and made.restored()
    assert {pair for _, *pair in map(tuple, came["ran"]) for pair in [tuple(pair)]}, "it ran all the same"


def test_changes_that_are_only_noted_can_follow_faster_than_any_clock(played, lab):
    made = lab("h200", deny=1, **BOARD)
    came, _, done = played(
        lambda _: gpu_play.schedule(read(RECORD), 8),
        made,
        settings=ONCE | {"dry_run": True},
        slower=10.0,
    )
    assert came, done.stderr
    assert came["certificate"]["pieces"] == came["certificate"]["changes"] == 8 and not came["certificate"]["why"]
    assert came["log"][0] >= 8 * 2 and came["log"][1] is None, "the last step may end before its changes are noted"


def test_without_the_right_to_set_clocks_nothing_is_played(played, lab):
    came, made, done = played(made=lab("h200", deny=1, **BOARD))
    assert came is None and "no permission" in done.stderr and "Traceback" not in done.stderr
    assert made.boards.get("sets") == "0" and made.restored()


# a schedule of memory clocks is refused where `apply --pair 900,2201` is; the simulated stream itself needs its lists
REFUSED_TOO = [name for name, (_, _, refuses) in REFUSED.items() if "apply" in refuses and name != "no clocks"]


@pytest.mark.parametrize("fault", each_fault(REFUSED_TOO, ("lost", "MIG", "a counter that stands", "no memory lock")))
def test_nothing_is_locked_where_apply_would_refuse(played, lab, fault):
    knobs, said, _ = REFUSED[fault]
    said = {"Turing": "no memory clock 3201 MHz to lock"}.get(fault, said)
    came, made, done = played(made=lab("h200", **BOARD | knobs))
    assert came is None and done.stderr.startswith("error: ") and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and made.comes_to(lambda: made.boards.locks == ("none", "none"))
    assert "LockedClocks" in str(knobs) or made.boards.get("sets") == "0"


def test_a_step_that_leaves_other_bits_in_pieces_stays_at_auto(unused):
    came, made, done = unused["other bits"]
    assert came, done.stderr
    assert came["certificate"]["same_bits"] is False and not came["certificate"]["holds"]
    assert "leaves other bits" in came["certificate"]["why"] and "auto instead" in came["said"][-1]
    assert made.restored() and came["log"][2], "the blocks of the certificate were played to their end"
    # at auto the governor runs this load above what the schedule asks for its forward section; the first steps may
    # run before a loaded machine has given the clocks back
    assert all(core > FORWARD[0] + 100 for name, core, _ in came["ran"][-11:] if name == "gelu_forward")


def test_a_schedule_that_saves_nothing_is_not_used(unused):
    came, made, done = unused["nothing saved"]
    assert came, done.stderr
    assert not came["certificate"]["holds"] and "no energy saved" in came["certificate"]["why"]
    assert came["certificate"]["energy"] > 3 and made.restored()


def test_a_counter_that_fails_ends_no_training_and_certifies_nothing(unused):
    came, made, done = unused["a counter that fails"]
    assert came and done.returncode == 0, done.stderr
    assert not came["certificate"]["holds"] and "nvmlDeviceGetTotalEnergy" in came["certificate"]["why"]
    assert len(came["ran"]) >= 12 and came["restored"] and made.restored()


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (
            "clocks that are not obeyed",
            "a block at schedule: not_reached; core clock: asked 1500 MHz, reached 1980 MHz",
        ),
        ("a counter off by a factor", "a block at auto: counter; energy counter: "),
    ],
)
def test_one_pair_is_not_certified_where_nothing_shows_what_it_does(unused, fault, why):
    came, made, done = unused[fault]
    assert came and done.returncode == 0, done.stderr
    assert not came["certificate"]["holds"] and came["certificate"]["why"].startswith(why), came["certificate"]["why"]
    assert len(came["ran"]) >= 12 and came["restored"] and made.restored()


def test_a_killed_program_gets_its_clocks_back(played):
    came, made, done = played(settings=QUICK | {"repeats": 0}, steps=50, die=2)
    assert came is None and done.returncode == -9
    assert int(made.boards.get("sets")) > 1 and made.restored()


@pytest.mark.parametrize("way", ["broker", pytest.param("zeusd", marks=pytest.mark.nightly)])
def test_sections_run_at_their_clocks_through_whatever_sets_them(played, lab, way):
    made = lab("h200", **BOARD)
    config = made.offer(way)
    came, made, done = played(made=made, settings=QUICK | config, steps=4)
    assert came and came["log"][1:] == [None, True], done.stderr
    assert came["certificate"]["changes"] == 3 and came["certificate"]["energy"] < -3
    assert made.restored() and int(made.boards.get("sets")) > 10


@pytest.mark.parametrize(
    "way", ["broker", *(pytest.param(way, marks=pytest.mark.nightly) for way in ("zeusd", "sudo", "dcgm"))]
)
def test_one_pair_for_the_whole_run_is_locked_and_given_back_through_whatever_sets_clocks(played, lab, way):
    # long enough for a program that is started for each change
    for ending in ({"steps": 40}, {"steps": 50, "die": 2}):
        made = lab("h200", **BOARD)
        settings = QUICK | {"repeats": 0, "latency_s": 10.0} | made.offer(way)
        came, made, done = played(lambda schedule: schedule | SINGLE, made, settings=settings, **ending)
        assert made.restored(), (ending, done.stderr)
        assert int(made.boards.get("sets")) >= 4, "the probe, and given back"
        if "die" not in ending:
            assert came and came["log"][1:] == [None, True], done.stderr
            assert (came["ran"][-1][1], came["ran"][-1][2]) == BACKWARD


@pytest.mark.parametrize(
    ("schedule", "settings", "named"),
    [
        ({}, {"through": "dcgm"}, ["pairs[0]", "through: dcgm", "lock: exact"]),
        ("half", {"through": "dcgm", "lock": "exact"}, ["pairs[0]", "through: dcgm", "both clocks or none"]),
        ({}, {"through": "dcgm", "lock": "exact", "after": "core=900-900"}, ["both core and mem, or none"]),
        ({}, {"through": "broker", "after": "core=345-1700"}, ["through broker", "leave `after` empty"]),
        ({}, {"through": "magic"}, ["magic", "allowed: auto, nvml, broker"]),
        ({}, {"lock": "tight"}, ["tight", "range, exact"]),
    ],
)
def test_what_a_way_of_setting_clocks_can_never_do_is_refused_before_anything_is_set(
    played, lab, schedule, settings, named
):
    made = lab("h200", **BOARD)
    made.offer(settings.get("through") if settings.get("through") in ("dcgm", "broker") else "nvml")
    pair = {"core_mhz": 1500, "mem_mhz": "auto"}
    half = SINGLE | {"targets": dict.fromkeys(SINGLE["targets"], pair)}
    came, made, done = played(
        lambda own: own | (half if schedule == "half" else schedule), made, settings=QUICK | settings
    )
    assert came is None and all(word in done.stderr for word in named), done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1
    assert made.boards.get("sets") == "0" and made.restored()


def test_the_site_s_own_clocks_are_left_behind_however_the_program_ends(played, lab):
    own, quick = "core=345-1700,mem=2201-3201", QUICK | {"repeats": 0}
    for ending in ({"steps": 2}, {"steps": 50, "die": 2}):
        _, made, done = played(made=lab("h200", **BOARD), settings=quick | {"after": own}, **ending)
        assert done.returncode in (0, -9), done.stderr
        left = ("345-1700", "2201-3201")
        assert made.comes_to(lambda made=made, left=left: made.boards.locks == left and not made.lease.exists()), ending


@pytest.mark.parametrize(
    ("after", "named"), [("core=2500-2600", ["after", "within 345 to 1980"]), ("sm=1-2", ["core=LOWEST-HIGHEST"])]
)
def test_clocks_to_leave_behind_that_the_gpu_lacks_are_refused_before_anything_is_set(played, after, named):
    came, made, done = played(settings=QUICK | {"after": after})
    assert came is None and all(word in done.stderr for word in named) and "Traceback" not in done.stderr
    assert made.boards.get("sets") == "0" and made.restored()


def test_where_the_process_that_holds_the_clocks_is_killed_they_come_back_and_the_step_runs_on(played):
    came, made, done = played(settings=QUICK | {"repeats": 0}, steps=8, lose=2)
    assert came, done.stderr
    assert "back to auto clocks for good" in came["said"][-1] and "is gone" in came["said"][-1]
    assert len([name for name, _, _ in came["ran"]]) == 8 * 11 and made.restored()


def test_a_record_is_found_beside_the_schedules_of_its_study(tmp_path):
    step = read(RECORD)
    captured = replace(step, targets=tuple(replace(target, repeatable="untried") for target in step.targets))
    (tmp_path / "schedules").mkdir()
    path = tmp_path / "schedules/s.json"
    made_for = {"step": {"file": "results/elsewhere/step.json", "checksum": step.checksum}}
    write_json(path, whole_schedule(workload=made_for))
    assert record_of(str(path), captured) is captured
    write(tmp_path / "step.json", replace(step, checksum="0" * 12))
    assert record_of(str(path), captured) is captured, "that of another step is none"
    write(tmp_path / "step.json", step)
    assert record_of(str(path), captured) == step


@pytest.mark.parametrize(
    ("left", "same"),
    [
        ([("p", "a"), ("p", "a"), ("p", "a")], True),
        ([("p", "a"), ("p", "a"), ("p", "b")], False),
        # working memory that is other each time says nothing; what outlives the step still does
        ([("p", "a"), ("p", "b"), ("p", "c")], True),
        ([("p", "a"), ("p", "b"), ("q", "c")], False),
        ([("p", "a"), ("q", "b"), ("q", "c")], None),
    ],
)
def test_bits_are_compared_as_far_as_the_step_itself_repeats_them(left, same):
    seen = iter(left)

    class Replayed:
        restore = synchronize = staticmethod(lambda: None)
        fingerprint = staticmethod(lambda: next(seen))

    playing = play(Replayed(), "s.json")
    playing._launching = lambda how: nullcontext(lambda: None)
    assert playing._same_bits() is same


class Stream:
    """A GPU whose steps take `late_s` until clocks have come, `later_s` from then on, at 100 W and 200 W; on simulated
    time, so that no other process has a part in it."""

    def __init__(self, late_s, later_s, comes_s, held_up=()):
        """held_up: at these times, s, the machine comes between a read of the counter and what reads it, for 0.35 s."""
        self.late_s, self.later_s, self.now_s, self.held_up = late_s, later_s, 0.0, sorted(held_up)
        self.comes_s, self.free_s, self.reads = comes_s, 0.0, 0

    def monotonic(self):
        return self.now_s

    def sleep(self, for_s):
        self.now_s += for_s

    def launch(self):
        begin_s = max(self.free_s, self.now_s)
        self.free_s = begin_s + (self.late_s if begin_s < self.comes_s else self.later_s)

    def event(self):
        stream = self

        class Event:
            def record(self):
                self.at_s = stream.free_s

            def done(self):
                return stream.now_s >= self.at_s

        return Event()

    def synchronize(self):
        self.now_s = max(self.now_s, self.free_s)

    def energy_mj(self):
        self.reads += 1
        self.sleep(0.004)
        edge_s = 0.1 * int(self.now_s / 0.1)
        if self.held_up and self.now_s >= self.held_up[0]:
            self.held_up.pop(0)
            self.sleep(0.35)
        slow_s = min(edge_s, self.comes_s)
        return round(1e3 * (100 * slow_s + 200 * (edge_s - slow_s)))


def test_what_a_step_takes_before_its_clocks_have_come_does_not_count(monkeypatch):
    stream = Stream(late_s=0.012, later_s=0.003, comes_s=0.3)
    monkeypatch.setattr(playing, "time", stream)
    block = measured_block(stream.launch, stream, stream.energy_mj, seconds=1.0)
    assert block.time_s == pytest.approx(0.003, rel=0.02) and block.energy_j == pytest.approx(200 * 0.003, rel=0.03)
    # a player asks for clocks through the same process, which a read keeps busy for 4 ms
    assert stream.reads < 100


@pytest.mark.parametrize("held_up_s", [0.58, 0.7, 1.2])
def test_a_machine_that_reads_the_counter_late_changes_no_power_of_a_block(monkeypatch, held_up_s):
    # the first edge would be seen a third of a second late, and the power of a short block be double
    stream = Stream(late_s=0.003, later_s=0.003, comes_s=0.0, held_up=[held_up_s])
    monkeypatch.setattr(playing, "time", stream)
    block = measured_block(stream.launch, stream, stream.energy_mj, seconds=0.6)
    assert not stream.held_up and block.energy_j / block.time_s == pytest.approx(200, rel=0.02)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"workload": {"name": "x", "step": {"checksum": "0" * 12}}}, ["workload.step.checksum", "another batch"]),
        ({"workload": {"name": "gpt3-xl-b40-tp1"}}, ["no captured step"]),
        (
            {"gpu": {"kind": "nvml", "name": "other", "slug": "other"}},
            ["gpu.slug is other, of nvml other, this"],
        ),
        ({"granularity": "kernel"}, ["for each kernel", "kernel-dvfs sequence"]),
        ({"schema": "x"}, ["schema"]),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_line(tmp_path, changed, named):
    step = read(RECORD)
    write_json(tmp_path / "s.json", schedule_of(step, "here") | changed)
    with pytest.raises(InputError) as error:
        iteration_of(str(tmp_path / "s.json"), step, {"slug": "here", "name": "this"}, 0.05)
    assert all(word in str(error.value) for word in named) and "\n" not in str(error.value)
