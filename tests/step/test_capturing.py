"""A capture in a process of its own: what hangs takes that process with it, and the next one goes on without it."""

import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
from step_record import DEVICE, record

from kernel_dvfs.cli.main import main
from kernel_dvfs.workload import step as steps
from kernel_dvfs.workload.step import SavedMemory
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import read_json
from kernel_dvfs_step import assembly, capturing, grouping, nodes, pace, trace, trial
from kernel_dvfs_step.beside import Cost
from kernel_dvfs_step.trial import Tried


@pytest.fixture
def processes(monkeypatch):
    """processes(*lines of each): what children say; returns what each was told."""
    monkeypatch.setattr(capturing, "load", lambda *_: None)
    monkeypatch.setattr(capturing.interpreter, "lacks", lambda: "")

    def made(*said):
        told, answers = [], iter(said)

        def child(what):
            told.append(json.loads(json.dumps(what)))
            yield from next(answers)

        monkeypatch.setattr(capturing, "_child", child)
        return told

    return made


def failed(place, why="it hung", kind="k"):
    return {"failed": place, "what": "kernel", "kind": kind, "why": why}


def test_a_class_that_hung_is_told_to_the_next_process_with_what_is_known(processes, recording, outline_of):
    step = record(outline_of(recording("triton_kernel")))
    tried = {"tried": 4, "result": asdict(Tried(1.0, 1, "yes", "", 0))}
    told = processes([tried, failed(7)], [failed(7)], [{"step": asdict(step)}])
    said = []
    assert capturing.capture("train.py:make", say=said.append) == step
    assert [each["failed"] for each in told] == [{}, {"7": ["it hung"]}, {"7": ["it hung", "it hung"]}]
    assert [list(each["known"]) for each in told] == [[], ["4"], ["4"]]
    assert [each["joined"] for each in told] == [[], [], ["k"]], "then with the launch before it"
    assert said[0].startswith(f"train.py:make: run by {capturing.sys.executable} (Python ")
    assert said[1:] == ["kernel: it hung; going on without it"] * 2


def test_a_python_without_torch_is_refused_before_anything_is_asked_for_that_would_be_compiled(processes, monkeypatch):
    processes()
    monkeypatch.setattr(capturing.interpreter, "lacks", lambda: "has no torch")
    monkeypatch.setattr(capturing, "load", lambda *_: pytest.fail("it was asked for"))
    with pytest.raises(InputError, match=r"run by the Python of this command, .* which has no torch: .*-m pip install"):
        capturing.capture("train.py:make")


def test_an_error_of_the_child_is_the_captures_error(processes):
    processes([{"say": "hello"}, {"error": "train.py:make: capture failed (x); usual cause: y"}])
    with pytest.raises(InputError, match="usual cause: y"):
        capturing.capture("train.py:make", say=lambda line: None)


def test_a_step_that_is_another_one_in_each_process_is_refused_before_anything_known_is_used(processes):
    processes(
        [{"captured": "a" * 12}, {"tried": 4, "result": asdict(Tried(1.0, 1, "yes", "", 0))}, failed(7)],
        [{"captured": "b" * 12}, {"tried": 5, "result": asdict(Tried(1.0, 1, "yes", "", 0))}],
    )
    with pytest.raises(InputError) as error:
        capturing.capture("train.py:make", say=lambda line: None)
    assert "launches other kernels each time it is captured (aaaaaaaaaaaa, then bbbbbbbbbbbb)" in str(error.value)
    assert "cudnn.benchmark" in str(error.value)


def test_a_child_is_told_more_than_a_command_line_holds(tmp_path):
    (tmp_path / "train.py").write_text("def make(): return lambda: None\n")
    told = {"source": f"{tmp_path}/train.py:make", "results": str(tmp_path), "failed": {}, "known": {}}
    told["joined"] = ["k" * 4000] * 1000
    (line,) = capturing._child(told)
    assert "graph is not built" in line["error"]


def test_processes_that_never_come_to_an_end_are_given_up(processes):
    processes(*([failed(place)] for place in range(50)))
    with pytest.raises(InputError, match="12 processes hung or failed"):
        capturing.capture("train.py:make", say=lambda line: None)


def test_a_child_without_torch_refuses_in_one_line(tmp_path):
    (tmp_path / "train.py").write_text("def make(): return lambda: None\n")
    told = {"source": f"{tmp_path}/train.py:make", "results": str(tmp_path), "failed": {}, "known": {}}
    (line,) = capturing._child(told)
    assert "error" in line and "\n" not in line["error"]


def test_a_child_that_dies_without_a_word_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(capturing.sys, "executable", "/bin/false")
    with pytest.raises(InputError, match=r"the process that captured it died \(exit code 1\)"):
        list(capturing._child({"source": "train.py:make"}))


@pytest.mark.parametrize("ends", ["sys.exit(3)", "os.write(int(sys.argv[3]), said)"])
def test_what_a_child_says_to_its_terminal_is_told_in_one_line(tmp_path, monkeypatch, capfd, ends):
    said = b'{"failed": 7, "what": "k", "kind": "k", "why": "it failed"}\n'
    child = tmp_path / "child"
    text = (
        f"import os, sys\nsaid = {said!r}\nfor number in range(1344):\n    print('assert', number, file=sys.stderr)\n"
    )
    child.write_text(f"#!{capturing.sys.executable}\n{text}sys.stderr.flush()\n{ends}\n")
    child.chmod(0o755)
    monkeypatch.setattr(capturing.sys, "executable", str(child))
    if "exit" in ends:
        with pytest.raises(InputError, match=r"died \(exit code 3\); it said: assert 1343$"):
            list(capturing._child({"source": "train.py:make"}))
    else:
        (line,) = capturing._child({"source": "train.py:make"})
        assert line["why"] == "it failed; it said: assert 1343"
    assert not capfd.readouterr().err


def test_the_command_keeps_the_file_of_the_very_same_step(processes, recording, outline_of, tmp_path, capsys):
    step = record(outline_of(recording("triton_kernel")))
    path = tmp_path / "step.json"
    later = replace(step, date_utc="2027-01-01T00:00:00Z")
    clocked = replace(later, targets=tuple(replace(each, core_mhz=1500.0) for each in step.targets))
    other = replace(step, checksum="0" * 12)
    processes(*([{"step": asdict(each)}] for each in (step, later, clocked, later, other)))
    assert main(["capture", "train.py:make", "-o", str(path)]) == 0
    first = path.read_bytes()
    assert "100.0 % of the traced time can be measured" in capsys.readouterr().out
    assert main(["capture", "train.py:make", "-o", str(path)]) == 0
    assert path.read_bytes() == first, "an edited comment captures the same step"
    assert main(["capture", "train.py:make", "-o", str(path)]) == 0
    assert steps.read(path) == clocked, "a file without clocks gets them"
    assert main(["capture", "train.py:make", "-o", str(path)]) == 0
    assert steps.read(path) == clocked, "and keeps them where they could not be read again"
    assert main(["capture", "train.py:make", "-o", str(path)]) == 0
    assert steps.read(path).checksum == "0" * 12


def test_ranges_added_later_are_written_though_the_kernels_are_the_same(processes, recording, outline_of, tmp_path):
    step = record(outline_of(recording("triton_kernel")))
    targets = [
        replace(target, section="warm_up" if target.section == "forward" else target.section) for target in step.targets
    ]
    marked = replace(
        step,
        targets=tuple(targets),
        sections=tuple("warm_up" if name == "forward" else name for name in step.sections),
    )
    assert marked.checksum == step.checksum
    path = str(tmp_path / "step.json")
    processes([{"step": asdict(step)}], [{"step": asdict(marked)}])
    for sections in (step.sections, marked.sections):
        assert main(["capture", "train.py:make", "-o", path]) == 0
        assert steps.read(path).sections == sections


def test_state_that_was_not_saved_is_said_in_the_record_and_by_the_command(
    processes, recording, outline_of, tmp_path, capsys
):
    left = SavedMemory(4096, 1024, "host", "no memory was left for 1 of 3 blocks, the largest ones")
    step = replace(record(outline_of(recording("triton_kernel"))), state=left)
    processes([{"step": asdict(step)}])
    assert main(["capture", "train.py:make", "-o", str(tmp_path / "step.json")]) == 0
    assert "1024 of 4096 B of its state were saved: no memory was left for 1 of 3 blocks" in capsys.readouterr().out
    assert steps.read(tmp_path / "step.json").state == left


def test_names_come_from_file_and_function():
    assert capturing.name_of("a/b/train_gpt.py:make_step") == "train-gpt-make-step"


# --- the record -------------------------------------------------------------------------------------------------------


def test_a_record_holds_every_recorded_node_and_no_address(recorded, outline_of, tmp_path):
    step = record(outline_of(recorded))
    steps.write(tmp_path / "step.json", step)
    assert steps.read(tmp_path / "step.json") == step
    assert len(step.nodes) == len(recorded.nodes) and step.coverage == 1.0
    text = (tmp_path / "step.json").read_text()
    assert not [node.address for node in recorded.nodes if node.address and str(node.address) in text]
    demangled = dict(zip((node.function for node in recorded.nodes), recorded.functions))
    assert step.checksum == nodes.checksum(recorded.nodes, demangled)


def test_the_record_of_a_recorded_step_is_the_one_that_the_gpu_gave(recording, outline_of):
    known = steps.read(f"{__file__.rpartition('/')[0]}/../workload/steps/h200_conv.json")
    step = record(outline_of(recording("conv")))
    assert step.checksum == known.checksum
    assert (step.order, step.nodes, step.sections) == (known.order, known.nodes, known.sections)
    assert [(each.id, each.digest, each.own) for each in step.targets] == [
        (each.id, each.digest, each.own) for each in known.targets
    ]


def test_a_graph_that_runs_other_kernels_than_its_call_says_so_in_its_record(recording, outline_of):
    plain, other = recording("gpt_eager"), recording("gpt_eager")
    assert record(outline_of(plain)).noticed == ()
    flash = [each for each in other.call if each.kind == "gpu" and "flash_fwd" in each.name]
    other.call = [replace(each, name="fused_by_another_name") if each in flash else each for each in other.call]
    step = record(outline_of(other))
    (line,) = step.noticed
    assert f"{len(flash)} x flash_fwd_kernel (" in line and f"{len(flash)} x fused_by_another_name (" in line
    own_ms = 1e-6 * sum(each.end_ns - each.start_ns for each in flash)
    assert f"a call runs {len(flash)} x fused_by_another_name ({own_ms:.2f} ms)" in line
    # what a call runs on the GPU, whatever its kernels are called
    gpu_us = sum(each.end_ns - each.start_ns for each in plain.call if each.kind == "gpu") / 1e3
    assert step.whole.call_us == pytest.approx(gpu_us, abs=0.001)
    # too short to matter: a word for each would hide those that do
    assert assembly._of_others([trace.Other("x", 1, 199.0)], [], 20000.0) == ()
    assert assembly._of_others([], [trace.Other("x", 1, 201.0)], 20000.0)


def test_what_cannot_be_repeated_is_no_part_of_the_coverage(recording, outline_of):
    found = outline_of(recording("conv"))
    tried = [Tried(1.0, 1, "yes", "", 0) for _ in found.classes]
    tried[4] = Tried(None, 1, "no", trial.hung(), 0)
    step = record(found, tried)
    (left,) = step.left_at_auto
    assert "hung" in left.reason
    assert step.coverage == pytest.approx(1 - left.launches * left.time_us / step.time_us)


def test_without_a_trace_a_step_has_one_section_and_no_times(recording):
    step = recording("triton_kernel")
    found = assembly.outline_of(step.nodes, step.functions, step.segments, [], [])
    made = record(found)
    assert made.sections == ("unmarked",) and made.time_us is None and made.coverage is None


def test_another_batch_is_another_step(recording):
    step = recording("triton_kernel")
    other = [replace(node, grid=(2 * node.grid[0], *node.grid[1:])) for node in step.nodes]
    assert nodes.checksum(step.nodes) != nodes.checksum(other)


def test_kinds_of_failed_kernels_tell_shapes_apart(recording):
    kinds = {grouping.kind_of(node) for node in recording("conv").nodes if node.kind == "kernel"}
    shapes = {(node.function, node.shape) for node in recording("conv").nodes if node.kind == "kernel"}
    assert len(kinds) == len(shapes)


# --- the child, without a GPU -----------------------------------------------------------------------------------------


class Event:
    def __init__(self, device):
        self.device, self.at = device, 0.0

    def record(self):
        self.at = self.device.now_ms

    def wait(self): ...

    def since_ms(self, earlier):
        return self.at - earlier.at


@pytest.fixture
def whole_step(fake_living, monkeypatch):
    """whole_step(effects): a captured step of kernels k0, k1, ... with these effects and a trace of them; two nodes of
    forward, the rest backward."""
    from kernel_dvfs_step import framework, trace

    def made(effects):
        found = [
            nodes.Node("kernel", f"k{number}", after=(number - 1,) if number else ()) for number in range(len(effects))
        ]
        living = fake_living(found, effects, [1000.0] * len(effects))
        living.device.now_ms = 0.0
        living.functions = [node.function for node in found]
        living.edges = [(place, place + 1, False) for place in range(len(found) - 1)]
        living.checksum = nodes.checksum(found)
        living.extension = SimpleNamespace(Event=Event, CudaError=ZeroDivisionError, OutOfMemory=MemoryError)

        def replay():
            living.device.now_ms += float(len(found))
            living.loop(range(len(found))).run(1)

        living.replay = replay
        living.whole = lambda: SimpleNamespace(run=lambda count=1: replay())
        events = [
            trace.Event(
                f"k{at}",
                "gpu",
                (run * len(found) + at) * 1_000_000,
                (run * len(found) + at + 1) * 1_000_000,
                number=at + 1,
            )
            for run in range(1000)
            for at in range(len(found))
        ]
        monkeypatch.setattr(
            pace, "within_step_mhz", lambda _, launches, warm_s: [1500.0 + 10 * place for place in launches]
        )
        monkeypatch.setattr(framework, "traced_replays", lambda run, count: events[: count * len(found)])
        engine = "autograd::engine::evaluate_function: X"
        call = [trace.Event(f"aten::op{at}", "op", 10 * at, 10 * at + 5, 1, at + 1) for at in range(2)]
        call += [trace.Event(engine, "op", 20, 10 * len(found) + 9, 2, 100)]
        call += [trace.Event(f"aten::op{at}", "op", 10 * at + 1, 10 * at + 5, 2, at + 1) for at in range(2, len(found))]

        def memory():
            living.memory.save()
            return living.memory

        calls = [call + events[: len(found)]]
        return framework.Opened(living, calls, DEVICE | {"driver": 13000}, {"torch": "2.11.0"}, memory)

    return made


# a GPU that nobody else computes on
BESIDE = SimpleNamespace(neighbours=0, newcomers=lambda: 0, cost=lambda *_: Cost(0.004, 2.25))


def told(**more):
    return {"source": "train.py:make", "name": "mine", "failed": {}, "known": {}, "joined": [], "keep": ""} | more


def overwrites(memory, chunk=2):
    memory[chunk << 16] = (memory[chunk << 16] + 1) % 256


def test_the_child_tells_a_whole_step(whole_step, tmp_path):
    def keeps(memory):
        memory[1 << 16] = 5

    opened = whole_step([keeps, keeps, overwrites, keeps])
    said = []
    content = capturing.Capturing(opened, told(keep=str(tmp_path)), lambda **line: said.append(line), BESIDE).step()
    step = steps.from_content(json.loads(json.dumps(content)), "here")
    assert [each.repeatable for each in step.targets] == ["yes", "yes", "restored", "yes"]
    assert step.sections == ("forward", "backward")
    # backward overwrites what it reads, so repeated by itself it would run on other data; its kernels are in one piece
    assert list(step.passes) == ["forward", "backward", "step"] and not step.not_repeated
    assert [each.core_mhz for each in step.targets] == [1500.0, 1510.0, 1520.0, 1530.0]
    assert "overwrites what it reads" in step.by_difference["backward"]
    assert step.beginnings("backward") == ([0, 1], [0, 1, 2, 3])
    assert step.whole.time_us == pytest.approx(4000.0) and step.whole.same_bits and step.whole.deterministic
    assert [line for line in said if "tried" in line] and step.versions["cuda_driver"] == "13.0"
    kept = read_json(tmp_path / "nodes.json")
    assert nodes.from_json(kept["nodes"]) == opened.living.nodes and kept["functions"] == opened.living.functions
    assert kept["segments"] == [list(each) for each in opened.living.memory.segments]
    traced = read_json(tmp_path / "trace.json")["calls"]
    assert [trace.from_json(call) for call in traced] == list(opened.calls)


def test_loop_and_graph_are_told_beside_each_other_and_who_came_meanwhile(whole_step):
    said = []
    crowded = SimpleNamespace(neighbours=3, newcomers=lambda: 2, cost=BESIDE.cost)
    opened = whole_step([lambda memory: None] * 3)._replace(items={"token": 4096})
    child = capturing.Capturing(opened, told(loop=[0.0065, 2.5]), lambda **line: said.append(line), crowded)
    step = steps.from_content(json.loads(json.dumps(child.step())), "here")
    whole = step.whole
    assert (whole.loop_us, whole.loop_j, whole.graph_us, whole.graph_j) == (6500.0, 2.5, 4000.0, 2.25)
    assert step.items == {"token": 4096}
    assert step.noticed == (
        "3 other process(es) computed on the GPU, which makes times and energies theirs, too",
        "2 other process(es) began to compute on the GPU meanwhile: capture it again",
    )
    from kernel_dvfs_step.commands import summary

    assert [line for line in summary(step) if line.startswith("as a")] == [
        "as a loop: 6.5 ms, 2.5 J, 0.6104 mJ a token",
        "as a graph: 4 ms, 2.25 J, 0.5493 mJ a token",
    ]


def test_a_section_that_reads_integers_is_never_repeated_once_it_may_have_overwritten_them(whole_step):
    opened, said, ran = whole_step([lambda memory: None] * 4), [], []
    opened.living.functions[3] = "void at::native::nll_loss_backward_kernel<float, long>(float*, long const*)"
    own = opened.living.loop
    opened.living.loop = lambda places, repeat=1, keep_edges=False: (
        ran.append(list(places)) or own(places, repeat, keep_edges)
    )
    child = capturing.Capturing(opened, told(), lambda **line: said.append(line), BESIDE)
    step = steps.from_content(json.loads(json.dumps(child.step())), "here")
    assert "read integers" in step.not_repeated["backward"] and [2, 3] not in ran
    assert [0, 1] in ran, "forward is tried: it begins where the step does"


def test_what_took_no_turns_is_not_tried_without_turns_again(processes, recording, outline_of):
    step = record(outline_of(recording("triton_kernel")))
    alone = failed(7) | {"alone": True}
    told = processes([alone], [alone], [{"step": asdict(step)}])
    capturing.capture("train.py:make", say=lambda line: None)
    assert [len(each["failed"].get("7", [])) for each in told] == [0, 2, 3]
    assert [each["joined"] for each in told] == [[], ["k"], ["k"]]


def test_a_section_in_several_pieces_or_too_short_is_no_difference():
    assert capturing._why_no_difference([2, 3], [1.0] * 4) == ""
    assert "was not traced" in capturing._why_no_difference([2, 3], [None] * 4)
    assert "run between its own" in capturing._why_no_difference([1, 3], [1.0] * 4)
    assert "it is 2.0 % of the step so far" in capturing._why_no_difference([1], [98.0, 2.0, 50.0])


def test_without_memory_to_read_clocks_the_step_is_captured_without_them(whole_step, monkeypatch):
    opened, said = whole_step([lambda memory: None] * 3), []

    def within_step_mhz(living, launches, warm_s):
        raise opened.living.extension.OutOfMemory("clock probe: out of memory")

    monkeypatch.setattr(pace, "within_step_mhz", within_step_mhz)
    step = capturing.Capturing(opened, told(), lambda **line: said.append(line), BESIDE).step()
    assert {each["core_mhz"] for each in step["targets"]} == {None}
    (line,) = [line["say"] for line in said if "clocks" in line.get("say", "")]
    assert line.endswith("clock probe: out of memory; hot kernels are not paced")


def test_a_kernel_that_fails_is_told_and_ends_the_child(whole_step):
    def fails(memory):
        raise ZeroDivisionError("CUDA_ERROR_ILLEGAL_ADDRESS")

    def keeps(memory): ...

    opened = whole_step([keeps, keeps, keeps])
    said = []
    child = capturing.Capturing(opened, told(), lambda **line: said.append(line), BESIDE)
    whole = child._whole
    child._whole = lambda: (whole(), opened.living._effects.__setitem__(2, fails))[0]
    with pytest.raises(capturing._Failed):
        child.step()
    (line,) = [line for line in said if "failed" in line]
    assert (line["failed"], line["what"]) == (2, "k2") and "CUDA_ERROR_ILLEGAL_ADDRESS" in line["why"]


# --- in the user's own program ----------------------------------------------------------------------------------------


@pytest.fixture
def in_program(whole_step, monkeypatch):
    """in_program(effects): what capturing in a program opens; `random_state` is torch's, one number."""
    from kernel_dvfs_step import api

    random_state = [0]
    cuda = SimpleNamespace(
        get_rng_state=lambda: list(random_state), set_rng_state=lambda state: random_state.__setitem__(0, state[0])
    )
    torch = SimpleNamespace(cuda=cuda, equal=lambda one, other: one == other)

    def make(effects):
        made = whole_step(effects)
        monkeypatch.setattr(api, "load", lambda *_: made.living.extension)
        monkeypatch.setattr(api.framework, "open_step", lambda *_, **__: made)
        monkeypatch.setattr(api.framework, "torch_module", lambda: torch)
        return made

    make.random_state = random_state
    return make


def trains(memory):
    memory[7] = (memory[7] + 1) % 256


def test_a_graph_that_draws_random_numbers_is_refused_and_the_generator_put_back(in_program):
    from kernel_dvfs_step import api

    def draws(memory):
        in_program.random_state[0] += 4

    in_program([trains, draws])
    with pytest.raises(InputError, match=r"mine: the step draws random numbers on the GPU \(dropout\?\)"):
        api.capture(lambda: None, name="mine")
    assert in_program.random_state == [0]


def test_a_step_captured_in_a_program_is_recorded_untried_and_its_state_is_as_before(in_program, tmp_path):
    from kernel_dvfs_step import api

    opened = in_program([trains, trains, trains])
    captured = api.capture(lambda: None, name="mine")
    assert {each.repeatable for each in captured.record.targets} == {"untried"} and captured.record.source == ""
    assert opened.living.device.memory[7] == 0
    captured.named("train.py:make").write(tmp_path / "step.json")
    assert steps.read(tmp_path / "step.json").source == "train.py:make"
    # played: saved, run in pieces, told apart, put back
    captured.save()
    before = captured.fingerprint()
    captured.whole().run(1)
    assert captured.fingerprint() != before and opened.living.device.memory[7] == 3
    captured.restore()
    assert captured.fingerprint() == before
    captured.piece([0, 1]).run(1)
    assert opened.living.device.memory[7] == 2
    captured.drop()
    captured.restore()
    assert opened.living.device.memory[7] == 2, "no copy is kept any more"


def test_a_state_that_cannot_be_saved_whole_is_refused_and_no_part_of_it_is_kept(in_program):
    from kernel_dvfs_step import api

    opened = in_program([trains])
    captured = api.capture(lambda: None, name="mine")
    memory = opened.living.memory
    memory._device_room = memory._host_room = lambda byte: None
    with pytest.raises(InputError, match=r"mine: its state of \d+ B cannot be saved: no memory was left"):
        captured.save()
    assert memory._saved == []


def test_nothing_is_asked_of_a_step_that_is_not_captured(monkeypatch):
    from kernel_dvfs_step import api

    monkeypatch.setattr(api, "load", lambda *_: None)
    with pytest.raises(InputError, match="nothing is captured yet"):
        _ = api.capture().record
