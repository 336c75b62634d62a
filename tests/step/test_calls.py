"""A step whose replays train otherwise than its calls is told: on planted steps and a torch without a GPU."""

import gc
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from step_record import record

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import framework
from kernel_dvfs_step.calls import Calls, Faith
from kernel_dvfs_step.framework import Opened
from kernel_dvfs_step.nodes import Node


class Optimiser:
    """Alive as torch's are: found by the garbage collector."""

    def __init__(self, **numbers):
        self.param_groups = [{"params": []}, numbers]


class Tensor:
    def __init__(self, value, is_cuda=False):
        self.value, self.is_cuda = value, is_cuda

    def numel(self):
        return 1

    def item(self):
        return self.value


TORCH = SimpleNamespace(optim=SimpleNamespace(Optimizer=Optimiser), Tensor=Tensor)


class Vector(np.ndarray):
    def norm(self):
        return np.linalg.norm(np.asarray(self))


def vector(*values):
    return np.array(values).view(Vector)


def compared(one, other):
    calls = Calls(TORCH)
    calls._left = [vector(1.0, 1.0), one, other]
    return calls


def looked(change, **numbers):
    gc.collect()  # optimisers of earlier tests
    optimiser, calls = Optimiser(**numbers), Calls(TORCH)
    for number in range(3):
        calls.look()
        change(optimiser.param_groups[1], number)
    return calls.faith(None, 0)


def test_a_rate_that_changes_from_call_to_call_is_frozen_in_a_graph():
    def schedule(group, number):
        group["lr"] = 2e-4 * (number + 1)

    (line,) = looked(schedule, lr=1e-4, betas=(0.9, 0.99)).frozen
    assert line.startswith("lr of Optimiser's group 1 changes from call to call (0.0001, then 0.0002)")
    on_host = looked(lambda group, number: setattr(group["lr"], "value", number), lr=Tensor(7.0)).frozen
    assert "(7, then 0)" in on_host[0]


def test_a_rate_that_stays_or_lies_on_the_gpu_is_not():
    assert looked(lambda group, number: None, lr=1e-4) == Faith()
    assert looked(lambda group, number: setattr(group["lr"], "value", number), lr=Tensor(7.0, is_cuda=True)) == Faith()


def test_a_copy_from_the_host_is_frozen():
    (line,) = Calls(TORCH).faith(None, 3).frozen
    assert line.startswith("3 node(s) copy from the host's memory") and "outside of it" in line


def test_replays_that_leave_other_parameters_than_calls_are_told():
    calls = compared(vector(2.0, 1.0), vector(2.0, 1.01))
    assert calls.faith(lambda: vector(2.0, 1.03), 0) == Faith(), "no further apart than calls are, four times over"
    (line,) = calls.faith(lambda: vector(2.0, 1.3), 0).frozen
    assert "30 % of their way" in line and "(1 % from calls to calls)" in line
    assert compared(vector(2.0, 1.0), vector(2.0, 1.0)).faith(lambda: vector(2.04, 1.0), 0) == Faith()
    assert compared(vector(2.0, 1.0), vector(2.0, 1.0)).faith(lambda: vector(2.06, 1.0), 0).frozen


def test_calls_that_differ_by_themselves_are_noticed_and_blame_no_replay():
    found = compared(vector(2.0, 1.0), vector(2.0, 1.3)).faith(lambda: vector(2.0, 1.9), 0)
    assert not found.frozen and "30 % of their way apart" in found.noticed[0]


def test_a_step_without_its_optimiser_is_noticed():
    found = compared(vector(1.0, 1.0), vector(1.0, 1.0)).faith(lambda: vector(1.0, 1.0), 0)
    assert not found.frozen and "no optimiser runs in it" in found.noticed[0]


def test_the_user_is_warned_and_the_record_says_it(fake_living, monkeypatch, recording, outline_of):
    living = fake_living([Node("copy", "copy", byte=64, is_host=True, from_host=True)], [lambda memory: None], [5.0])
    opened = Opened(living, [], {}, {}, lambda: living.memory)
    assert opened.faith().frozen[0].startswith("1 node(s) copy from the host's memory")
    step = record(outline_of(recording("triton_kernel")), faith=opened.faith(), items={"token": 4096})
    assert step.frozen == opened.faith().frozen and step.items == {"token": 4096}


def test_such_a_step_is_not_played(tmp_path, recording, outline_of):
    from kernel_dvfs_deploy import play

    step = record(outline_of(recording("triton_kernel")), faith=Faith(("lr changes",)))
    with (
        pytest.raises(InputError, match="step mine: it would train otherwise than called: lr changes"),
        play(SimpleNamespace(record=step), str(tmp_path / "none.json"), dry_run=True),
    ):
        pass


@pytest.fixture
def distributed(monkeypatch):
    """distributed(world): a torch that is initialised for so many ranks; `calls` notes how often a step is called."""

    def made(world):
        torch = SimpleNamespace(
            cuda=SimpleNamespace(CUDAGraph=type("Graph", (), {})),
            distributed=SimpleNamespace(
                is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: world
            ),
        )
        monkeypatch.setattr(framework, "torch_module", lambda: torch)

    return made


def test_several_ranks_are_refused_in_a_plain_line(distributed):
    distributed(2)
    with pytest.raises(InputError, match=r"train.py:make: a step of several ranks is not taken, .* with one rank"):
        framework.open_step(None, lambda: None, name="train.py:make")


def test_data_parallel_in_a_world_of_one_is_taken_after_as_many_calls_as_torch_asks_for(distributed, monkeypatch):
    distributed(1)
    warmed = []
    monkeypatch.setattr(framework, "_warm_up", lambda torch, step, name, count: warmed.append(count))
    monkeypatch.setattr(framework, "_traced_calls", lambda *_: [])
    monkeypatch.setattr(framework.Calls, "twice", lambda self, step: None)
    monkeypatch.setattr(framework, "_captured", lambda *_: None)
    monkeypatch.setattr(framework, "_opened", lambda *_: Opened(None, [], {}, {}, lambda: None))
    assert framework.open_step(None, lambda: None).living is None and warmed == [11]


@pytest.mark.parametrize("way", ["FullyShardedDataParallel", "FSDPModule"])
def test_sharded_parameters_are_refused_with_what_to_capture_instead(distributed, monkeypatch, way):
    distributed(1)
    kind = type(way, (), {})
    monkeypatch.setitem(sys.modules, "torch.distributed.fsdp", SimpleNamespace(**{way: kind}))
    assert not framework._is_sharded(), "imported, and not used"
    # fully_shard makes a class of its own of the module's
    model = type("FSDPLinear", (kind,), {})()
    with pytest.raises(InputError, match=r"^mine: its parameters are sharded \(FSDP\).* capture the plain model"):
        framework.open_step(None, lambda: model, name="mine")


def test_a_capture_that_torchrun_started_is_refused_before_it_waits_for_other_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    (tmp_path / "train.py").write_text("raise SystemExit('it would wait in init_process_group')\n")
    with pytest.raises(InputError) as error:
        framework.open_source(None, f"{tmp_path}/train.py:make")
    assert "WORLD_SIZE=4 is set, as torchrun does" in str(error.value) and "env -u WORLD_SIZE" in str(error.value)


def test_a_file_that_asks_for_a_rendezvous_is_told_how_to_make_one_rank(tmp_path, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    text = "Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected"
    (tmp_path / "train.py").write_text(f"def make(): raise ValueError({text!r})\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(InputError, match=r"a step of several ranks is not taken.*world_size=1"):
        framework.open_source(None, f"{tmp_path}/train.py:make")
