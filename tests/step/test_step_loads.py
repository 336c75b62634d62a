"""A captured step's targets and passes as loads, on a captured step that notes what is asked of it."""

import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from step_record import record

from kernel_dvfs.workload import step as steps
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import loads as step_loads
from kernel_dvfs_step import nodes
from kernel_dvfs_step.living import Refreshed
from kernel_dvfs_step.trial import Tried

ABOUT = {"file": "step.json", "code": "train.py:make"}


def living_of(recorded):
    demangled = dict(zip((node.function for node in recorded.nodes), recorded.functions))
    return SimpleNamespace(
        nodes=recorded.nodes, functions=recorded.functions, checksum=nodes.checksum(recorded.nodes, demangled)
    )


def test_capturing_again_must_give_the_same_launches(recording, outline_of):
    taken = recording("triton_kernel")
    step = record(outline_of(taken))
    step_loads.check_same(step, living_of(taken), ABOUT)
    changed = living_of(taken)
    changed.nodes = [*taken.nodes[:5], replace(taken.nodes[5], grid=(1, 2, 3)), *taken.nodes[6:]]
    changed.checksum = "0" * 12
    with pytest.raises(InputError) as error:
        step_loads.check_same(step, changed, ABOUT)
    assert "launches other kernels than when step.json was captured (from number 6 of 51: " in str(error.value)
    assert "kernel-dvfs capture train.py:make -o step.json" in str(error.value)


@pytest.mark.parametrize("changed", [{"block": (7, 1, 1)}, {"cluster": (2, 1, 1)}, {"shared_byte": 12345}])
def test_capturing_again_names_the_first_kernel_whatever_differs(recording, outline_of, changed):
    taken = recording("triton_kernel")
    step, other = record(outline_of(taken)), living_of(taken)
    other.nodes = [*taken.nodes[:5], replace(taken.nodes[5], **changed), *taken.nodes[6:]]
    other.checksum = nodes.checksum(other.nodes)
    with pytest.raises(InputError, match=r"\(from number 6 of 51: "):
        step_loads.check_same(step, other, ABOUT)


def test_capturing_again_may_give_fewer_kernels_or_other_values(recording, outline_of):
    taken = recording("triton_kernel")
    step, fewer, valued = record(outline_of(taken)), living_of(taken), living_of(taken)
    fewer.nodes, fewer.functions, fewer.checksum = taken.nodes[:50], fewer.functions[:50], "0" * 12
    with pytest.raises(InputError, match=r"\(from number 51 of 50: the last ones are missing\)"):
        step_loads.check_same(step, fewer, ABOUT)
    valued.nodes = [replace(taken.nodes[0], values=(7,)), *taken.nodes[1:]]
    valued.checksum = nodes.checksum(valued.nodes)
    with pytest.raises(InputError) as error:
        step_loads.check_same(step, valued, ABOUT)
    assert "with other values (a rate, a factor, a size); capture it again: kernel-dvfs capture" in str(error.value)


def test_a_setup_measures_its_own_step_only(recording, outline_of, tmp_path):
    step = record(outline_of(recording("triton_kernel")))
    path = tmp_path / "step.json"
    steps.write(path, step)
    assert step_loads.read_step({"file": str(path), "checksum": step.checksum}) == step
    with pytest.raises(InputError, match="this study is of 123456789abc"):
        step_loads.read_step({"file": str(path), "checksum": "123456789abc"})


class Loop:
    def __init__(self, living, places, repeat, rest_ns=0):
        self.living, self.places, self.repeat, self.rest_ns = living, places, repeat, rest_ns

    def run(self, count=1):
        self.living.ran.append((tuple(self.places), count * self.repeat))

    def time(self, count=1):
        return 1e-3 * count * self.repeat * (10.0 * len(self.places) + 1e-3 * self.rest_ns)


class Probe:
    """Reads 1234.5 MHz of every node, and something else between two."""

    def __init__(self, device, marks):
        self.marks = marks

    def sm_mhz(self):
        return [1234.5 if place % 2 == 0 else 1.0 for place in range(self.marks - 1)]


class Living:
    """What a load asks of a captured step; notes what it did."""

    def __init__(self, moved=False):
        self.ran, self.met, self.checked = [], [], 0
        hashes = iter(range(1, 100)) if moved else iter([1] * 100)
        self.memory = SimpleNamespace(all_hashes=lambda: next(hashes), check_restored=self._check)
        self.device = SimpleNamespace(synchronize=lambda: None)
        self.extension = SimpleNamespace(ClockProbe=Probe)
        self.chained = []

    def refreshed(self, graph):
        return Refreshed(graph, lambda: None, 7)

    def chain(self, places, repeat=1, rest_ns=0, marked=(), probe=None):
        graph = Loop(self, places, repeat, rest_ns)
        self.chained.append(SimpleNamespace(places=tuple(places), repeat=repeat, rest_ns=rest_ns, marked=marked))
        return graph

    def _check(self):
        self.checked += 1

    def loop(self, places, repeat=1, keep_edges=False):
        return Loop(self, places, repeat)

    def meet(self, place):
        self.met.append(place)


class Dog:
    """Notes how long it was told to wait."""

    def __init__(self):
        self.limits_s = []

    def limit(self, seconds, about):
        self.limits_s.append(seconds)
        return nullcontext()

    def arm(self, seconds, about): ...


@pytest.fixture
def captured(recording, outline_of):
    """A step of which the first class is restored."""
    found = outline_of(recording("gpt_eager"))
    tried = [Tried(10.0, min(4, len(each)), "yes", "", 0) for each in found.classes]
    tried[0] = Tried(10.0, 1, "restored", "it changes what it reads", 65536)
    return record(found, tried)


def test_a_load_lets_launches_take_turns_on_the_data_of_the_last(captured):
    target = max(captured.targets, key=lambda each: (each.launches > 4, len(each.own)))
    living = Living()
    load = step_loads.StepLoad(living, captured, SimpleNamespace(study="kernel", name=target.id), Dog())
    launches = captured.nodes_of(target.id)[: target.rotated]
    assert living.met == [min(launches[-1])]
    assert living.ran[0][0] == tuple(place for launch in launches for place in launch)
    assert load.launches % target.rotated == 0 and load.run_s == pytest.approx(
        1e-5 * len(living.ran[0][0]) / target.rotated
    )
    load.check()
    assert load.about["same_bits_after"] is True and load.about["repeatable"] == "yes" and living.checked == 1


def test_a_load_too_short_for_the_timer_is_taken_for_half_a_microsecond(captured, monkeypatch):
    monkeypatch.setattr(Loop, "time", lambda self, count=1: 0.0)
    target = max(captured.targets, key=lambda each: each.rotated)
    load = step_loads.StepLoad(Living(), captured, SimpleNamespace(study="kernel", name=target.id), Dog())
    assert load.run_s == pytest.approx(0.5e-6 / target.rotated)


def test_a_load_that_changes_what_it_reads_is_put_back_before_it_starts_and_says_so(captured):
    living = Living(moved=True)
    load = step_loads.StepLoad(living, captured, SimpleNamespace(study="kernel", name=captured.targets[0].id), Dog())
    assert load.restores and load.about["repeatable"] == "restored"
    before = len(living.met)
    load.put_back()
    assert len(living.met) == before + 1
    load.check()
    assert load.about["same_bits_after"] is None


def test_a_pass_is_its_section_as_one(captured):
    living = Living()
    load = step_loads.StepLoad(living, captured, SimpleNamespace(study="pass", name="backward"), Dog())
    assert list(living.ran[0][0]) == captured.section_nodes("backward") and load.restores
    assert living.met[0] == captured.section_nodes("backward")[0]


def test_a_section_that_overwrites_what_it_reads_runs_with_all_before_it_which_is_taken_off(captured):
    step = replace(captured, by_difference={"backward": "it overwrites what it reads", "forward": "it does, too"})
    before, both = step.beginnings("backward")
    assert both == list(range(len(both))) and sorted(before + step.section_nodes("backward")) == both
    living = Living()
    load = step_loads.StepLoad(living, step, SimpleNamespace(study="pass", name="backward"), Dog())
    assert {places for places, _ in living.ran} == {tuple(both), tuple(before)} and set(living.met) == {0}
    assert load.less.run_s < load.run_s and load.less.less is None and load.restores and load.less.restores
    assert load.about["instance"] == f"pass of {len(both)} nodes less a pass of {len(before)}"
    first = step_loads.StepLoad(Living(), step, SimpleNamespace(study="pass", name="forward"), Dog())
    assert first.less is None, "nothing comes before it: it is the step's beginning"


@pytest.mark.parametrize("alone_mhz", [1300.0, 1600.0])
def test_a_paced_kernel_rests_until_its_clock_is_that_of_the_step_and_rests_are_taken_off(
    captured, monkeypatch, alone_mhz
):
    target = max(captured.targets, key=lambda each: (each.launches == 4, len(each.own)))
    step, living, shares = captured, Living(), []

    def mhz(_, places, mains, repeat, rest_ns):
        assert [places[main] for main in mains] == [launch[-1] for launch in launches]
        shares.append(rest_ns / (rest_ns + 1e4 * len(places)))
        return alone_mhz + 1000 * shares[-1]

    monkeypatch.setattr(step_loads.pace, "alone_mhz", mhz)
    launches = step.nodes_of(target.id)[: target.rotated]
    paced = SimpleNamespace(study="pass", name=f"paced_{target.id}")
    load = step_loads.StepLoad(living, step, paced, Dog(), paced_mhz=1500.0)
    places = [place for launch in launches for place in launch]
    assert load.about["paced_mhz"] == 1500.0 and load.about["rotated"] == target.rotated
    if alone_mhz > 1500:  # nothing holds it down
        assert load.own_mhz(None) is None and load.less is None and load.about["rest_us"] == 0 and shares == [0]
        return
    rest_us = load.about["rest_us"]
    assert alone_mhz + 1000 * rest_us / (rest_us + 10 * len(places)) == pytest.approx(1500, rel=step_loads.pace.NEAR)
    chained = {(ran.places, ran.rest_ns) for ran in living.chained if ran.repeat > 1 and not ran.marked}
    assert chained == {(tuple(places), round(1e3 * rest_us)), ((), round(1e3 * rest_us))}
    # both per launch of the target, so that one can be taken off the other
    assert load.less.launches / load.less.run_s == pytest.approx(1e6 / rest_us * target.rotated**2 * load.less._repeat)
    assert load.less.less is None and load.less.own_mhz(None) is None and not load.less.restores
    assert load.own_mhz(SimpleNamespace(run_for=lambda seconds: None)) == pytest.approx(1234.5)


def test_what_changes_its_data_is_put_back_before_each_try_of_a_rest_and_refreshed_only_from_the_steps_start(
    captured, monkeypatch
):
    """Gradients that the user holds are state: at the start of the step they are not what its optimiser reads."""
    restored = captured.targets[0]
    assert restored.repeatable == "restored"
    later = next(each for each in captured.targets if each.section == "optimiser")
    step = replace(captured, targets=tuple(
        replace(each, repeatable="restored", reason="it adds") if each is later else each for each in captured.targets
    ))  # fmt: skip
    tries = []
    monkeypatch.setattr(
        step_loads.pace, "alone_mhz", lambda *_: tries.append(len(living.met)) or 1000 + 200 * len(tries)
    )
    living = Living()
    load = step_loads.StepLoad(
        living, step, SimpleNamespace(study="pass", name=f"paced_{later.id}"), Dog(), paced_mhz=1400.0
    )
    assert len(tries) >= 2 and tries == sorted(set(tries))
    assert load.restores and load._part.start > 0 and "runs_between_restores" not in load.about
    whole = step_loads.StepLoad(Living(), step, SimpleNamespace(study="pass", name="step"), Dog())
    assert whole.about["runs_between_restores"] == 7 * whole._repeat
    optimiser = step_loads.StepLoad(Living(), step, SimpleNamespace(study="pass", name="optimiser"), Dog())
    assert optimiser.restores and "runs_between_restores" not in optimiser.about


def test_a_kernel_with_the_name_of_a_paced_pass_is_a_kernel(captured):
    first = replace(captured.targets[0], id="paced_copy")
    loads = object.__new__(step_loads.StepLoads)
    loads._step, loads._living = replace(captured, targets=(first, *captured.targets[1:])), Living()
    loads._dog, loads._clocks_mhz = Dog(), {}
    assert "paced_mhz" not in loads.prepare(None, SimpleNamespace(study="kernel", name="paced_copy")).about


@pytest.mark.parametrize(("time_us", "meet_s"), [(2.5e6, 75.0), (None, 60.0)])
def test_coming_to_a_target_may_take_a_minute_and_six_steps_and_reading_clocks_a_minute_and_ten_times_that(
    captured, monkeypatch, time_us, meet_s
):
    monkeypatch.setattr(step_loads.pace, "within_step_mhz", lambda living, launches: [1500.0] * len(launches))
    monkeypatch.setattr(step_loads.pace, "alone_mhz", lambda *_: 2000.0)
    loads = object.__new__(step_loads.StepLoads)
    loads._step = replace(captured, whole=replace(captured.whole, time_us=time_us))
    loads._living, loads._dog, loads._clocks_mhz = Living(), Dog(), {}
    load = loads.prepare(None, SimpleNamespace(study="pass", name=f"paced_{captured.targets[0].id}"))
    assert load.meet_s == meet_s and loads._dog.limits_s == [60 + 10 * meet_s, meet_s]


def test_a_kernel_whose_clock_within_the_step_is_not_known_is_not_paced(captured):
    loads = object.__new__(step_loads.StepLoads)
    name = captured.targets[0].id
    loads._step, loads._living, loads._dog, loads._clocks_mhz = captured, Living(), Dog(), {name: float("nan")}
    with pytest.raises(InputError, match=f"pass/paced_{name}: its clock within the step could not be read"):
        loads.prepare(None, SimpleNamespace(study="pass", name=f"paced_{name}"))


def test_the_clocks_within_the_step_are_read_once_a_session_and_averaged_over_launches(captured, monkeypatch):
    read = []

    def within_step_mhz(living, launches):
        read.append(launches)
        return [1000.0 + launch for launch in range(len(launches))]

    monkeypatch.setattr(step_loads.pace, "within_step_mhz", within_step_mhz)
    monkeypatch.setattr(step_loads.pace, "alone_mhz", lambda *_: 2000.0)
    loads = object.__new__(step_loads.StepLoads)
    loads._step, loads._living, loads._dog, loads._clocks_mhz = captured, Living(), Dog(), {}
    ids = [target.id for target in captured.targets[:3]]
    found = [loads.prepare(None, SimpleNamespace(study="pass", name=f"paced_{name}")) for name in ids]
    for name, load in zip(ids, found):
        own = [launch for launch, place in enumerate(captured.order) if captured.targets[place].id == name]
        assert load.about["paced_mhz"] == pytest.approx(1000 + sum(own) / len(own))
    (launches,) = read
    assert launches == [
        max(node for node, at in enumerate(captured.nodes) if at == launch) for launch in range(len(captured.order))
    ]
    plain = loads.prepare(None, SimpleNamespace(study="kernel", name=ids[0]))
    assert "paced_mhz" not in plain.about and len(read) == 1


def test_a_running_load_counts_launches_not_graphs(captured):
    load = SimpleNamespace(launches=40, run_s=1e-5, restores=True, meet_s=1.0, put_back=lambda: put.append(1))
    put, ran = [], []
    steady = SimpleNamespace(
        ended=3, feed=lambda: None, run_for=ran.append, stop=lambda: None,
        between=lambda start, end: {"time_us": 400.0, "launches": 10, "sm_mhz": 1500.0},
    )  # fmt: skip
    running = step_loads.StepRunning(load, steady, Dog(), "kernel/x")
    assert running.between(0, 1) == {"time_us": 10.0, "launches": 400, "sm_mhz": 1500.0}
    running.run_for(0)
    assert put and ran[0] > 0, "after what was put back the load runs for a while before the window"


@pytest.mark.parametrize("run_s", [1e-4, 0.4])
def test_data_is_put_back_before_every_window_however_long_a_run_takes(captured, run_s):
    from kernel_dvfs.measurement.real.gpu import RealGpu

    load = SimpleNamespace(launches=1, run_s=run_s, restores=True, meet_s=1.0, put_back=lambda: done.append("put back"))
    done = []
    steady = SimpleNamespace(
        ended=3, feed=lambda: None, run_for=lambda seconds: done.append("ran"), stop=lambda: None,
        between=lambda start, end: {"time_us": 400.0, "launches": 10, "sm_mhz": 1500.0},
    )  # fmt: skip
    gpu = RealGpu.__new__(RealGpu)
    gpu._steady = step_loads.StepRunning(load, steady, Dog(), "kernel/x")
    gpu._board = SimpleNamespace(
        temperature_c=lambda: 50, throttled=lambda: (0, 0), event_reasons=lambda: 0, sm_mhz=lambda: 1500,
        mem_mhz=lambda: 2619, power_mw=lambda: None, power_limit_mw=lambda: None, mig=lambda: False,
    )  # fmt: skip
    gpu._own_processes, gpu._is_wanted, gpu._loads = None, lambda: True, SimpleNamespace(now_s=lambda: 0.0)
    gpu._board.compute_processes = lambda: None
    gpu._counter = SimpleNamespace(late_s=0.004, window=lambda seconds: done.append("window") or SimpleNamespace(
        start_s=0.0, end_s=seconds, energy_mj=500.0))  # fmt: skip
    for _ in range(2):
        gpu._window(load, 1.0)
    assert done == ["put back", "ran", "window"] * 2


def test_a_record_that_the_gpu_gave_is_read_and_says_how_it_was_repeated():
    from kernel_dvfs.measurement import record as records
    from kernel_dvfs.measurement import setup, target
    from kernel_dvfs_clocks.clocks import BASELINE

    folder = f"{__file__.rpartition('/')[0]}/recorded/h200"
    known = setup.read(f"{folder}/3fb58358c474.json")
    what = target.parse(known, "kernel/mm_8192x2048x8192")
    with open(f"{folder}/r0.json") as file:
        content = json.load(file)
    point = records.read_point(f"{folder}/r0.json", known, what, BASELINE)
    assert point["verdict"] == "ok" and content["kernel"]["same_bits_after"] is True
    # what a record holds of the device is what loads say of themselves now
    device = content["device"]
    versions = {"cuda": device["cuda"], "torch": device["torch"]}
    facts = step_loads.facts_of(versions, device["library_sha256"], device["step_checksum"])
    assert facts.items() <= device.items()


class Timed:
    """What a step's iteration asks of a captured step besides."""

    def __init__(self, living):
        self.living, self.restored, self.asked = living, 0, []
        living.memory.restore = self._restore
        living.timed = self._timed
        living.extension.TimeMarks = lambda device, room: SimpleNamespace(room=room)

    def _restore(self):
        self.restored += 1

    def _timed(self, places, marked, marks):
        self.asked.append((list(places), list(marked), marks.room))
        return Loop(self.living, places, 1)


def test_the_whole_step_is_marked_before_what_prepares_each_launch(captured, monkeypatch):
    step, living, dog = captured, Living(), Dog()
    timed, started = Timed(living), []
    made = SimpleNamespace(settles=lambda: False, is_over=lambda: True, feed=lambda: None, ended=3)
    made.passes, made.stop, made.stay = lambda: {"n": 1}, lambda: None, lambda seconds: None
    monkeypatch.setattr(step_loads, "Passing", lambda *words: started.append(words) or made)
    iteration = step_loads.StepIteration(living, step, dog)
    ((places, marked, room),) = timed.asked
    assert places == list(range(len(step.nodes))) and room >= 4 * (len(step.order) + 2)
    assert len(marked) == len(step.order) and marked == sorted(marked)
    assert [step.nodes[place] for place in marked] == [step.nodes[place] for place in sorted(marked)]
    assert all(place == 0 or step.nodes[place - 1] != step.nodes[place] for place in marked), "with what prepares it"
    passing = iteration.start(0.5, 2.5)
    ((of, settle_s, pass_s),) = started
    assert (settle_s, pass_s, timed.restored) == (0.5, 2.5, 1)
    assert of.names == [step.targets[step.order[step.nodes[place]]].id for place in marked]
    passing.feed()
    assert passing.passes() == {"n": 1} and passing.is_over() and not passing.settles()
    iteration.check()
    assert living.checked == 1


def test_kernels_in_turn_run_on_the_data_that_the_last_of_them_meets(captured):
    step, living = captured, Living()
    Timed(living)
    iteration = step_loads.StepIteration(living, step, Dog())
    names = tuple(target.id for target in step.measured[:3])
    load = iteration.round(dict.fromkeys(names, 1))
    nodes_of = sorted(step.nodes_of(name)[-1] for name in names)
    assert living.chained == [] and load._part.places == [place for each in nodes_of for place in each]
    assert living.met[-1] == nodes_of[-1][0] and iteration.round(dict.fromkeys(names, 1)) is load, "prepared once"
    assert load.restores == any(step.target(name).repeatable == "restored" for name in names)
    alone = iteration.round({names[0]: 1})
    assert alone._part.places != load._part.places
