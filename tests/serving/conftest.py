"""A bench on a made-up machine, and short synthetic traces."""

import pytest
from synthetic_profile import LineMachine, line_profile

from kernel_dvfs.serving.replay_cluster import Bench
from kernel_dvfs.serving.synthesise import hour


@pytest.fixture(scope="session")
def bench():
    """Not to be changed."""
    return Bench(LineMachine(), line_profile(kernel_level=True, requests=80))


@pytest.fixture(scope="session")
def trace():
    """A quarter of an hour of conversation."""
    return hour(4.0, seed=3, span_s=900)
