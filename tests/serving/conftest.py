"""A replayer on a made-up machine, and a short synthetic trace. What a session shares is not to be changed."""

import pickle

import pytest
from synthetic_profile import QUICK, LineMachine, line_profile

from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.steps import StepModel
from kernel_dvfs_serving.system import ClusterSettings
from kernel_dvfs_serving.trace import hours


@pytest.fixture(scope="session")
def line(once):
    """A made-up machine's profile."""
    folder = once(
        "line-profile", lambda made: (made / "profile.pickle").write_bytes(pickle.dumps(line_profile(requests=80)))
    )
    return pickle.loads((folder / "profile.pickle").read_bytes())


@pytest.fixture(scope="session")
def replayer(line):
    """That machine with its profile."""
    return Replayer(LineMachine(), line)


@pytest.fixture(scope="session")
def trace():
    """A quarter of an hour of conversation."""
    return hours(4.0, seed=3, span_s=900)


@pytest.fixture(scope="session")
def replayed(replayer, trace):
    """`replayed("DynamoLLM")` is the finished cluster of a system on the trace, each run once."""
    finished = {}

    def get(name):
        if name not in finished:
            finished[name] = replayer.run(trace, name, ClusterSettings(**QUICK))
        return finished[name]

    return get


@pytest.fixture(scope="session")
def instances():
    """`instances(4)` simulates steps of Llama2-70B on so many H100s, each made once."""
    made = {}

    def get(tp):
        if tp not in made:
            made[tp] = StepModel("h100_sxm", "llama2-70b", tp)
        return made[tp]

    return get
