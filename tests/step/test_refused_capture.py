"""A refused capture in the user's own program leaves its parameters and its GPU as they were."""

from types import SimpleNamespace

import pytest

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import api, framework
from kernel_dvfs_step.framework import Opened
from kernel_dvfs_step.nodes import Node


class Event:
    def __init__(self, device): ...
    def record(self): ...
    def wait(self): ...
    def since_ms(self, other):
        return 1.0


@pytest.fixture
def training(fake_living, monkeypatch):
    """A step that adds one to its parameter, which is 40 when it is captured, and draws random numbers if told to."""

    def add(memory):
        memory[0] += 1

    living = fake_living([Node("kernel", "add")], [add], [5.0])
    living.device.memory[0] = 40
    living.memory.save()
    random = SimpleNamespace(draws=False, state=0)

    def replay():
        add(living.device.memory)
        random.state += random.draws

    living.extension, living.replay = SimpleNamespace(Event=Event), replay
    living.functions, living.edges = ["add"], []
    cuda = SimpleNamespace(
        get_rng_state=lambda: random.state, set_rng_state=lambda state: setattr(random, "state", state)
    )
    torch = SimpleNamespace(cuda=cuda, equal=lambda one, other: one == other)
    monkeypatch.setattr(framework, "torch_module", lambda: torch)
    opened = Opened(living, [], {}, {}, lambda: living.memory)
    monkeypatch.setattr(framework, "open_step", lambda *_, **__: opened)
    monkeypatch.setattr(framework, "traced_replays", lambda replay, count: [replay() for _ in range(count)] and [])
    return SimpleNamespace(living=living, random=random, captured=api.Captured(living.extension, "mine"))


def is_as_before(training):
    """The parameter, and no copy of it that takes room: what comes later is not put back."""
    memory = training.living.device.memory
    assert memory[0] == 40
    memory[0] = 50
    training.living.memory.restore()
    return memory[0] == 50


def test_a_step_that_draws_random_numbers_is_refused_and_put_back(training):
    training.random.draws = True
    with pytest.raises(InputError, match="mine: the step draws random numbers on the GPU"):
        training.captured.open(lambda: None)
    assert training.random.state == 0 and is_as_before(training)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_while_it_is_traced_puts_it_back(training, monkeypatch, error):
    def fails(replay, count):
        replay()
        raise error("CUPTI")

    monkeypatch.setattr(framework, "traced_replays", fails)
    with pytest.raises(error, match="CUPTI"):
        training.captured.open(lambda: None)
    assert is_as_before(training)


def test_after_a_refusal_nothing_is_captured(training):
    training.random.draws = True
    with pytest.raises(InputError):
        training.captured.open(lambda: None)
    for use in (training.captured.replay, lambda: training.captured.record):
        with pytest.raises(InputError, match="nothing is captured yet"):
            use()
