"""A process in which a kernel hangs ends, and the one that started it learns what hung."""

import subprocess
import sys
import threading

import pytest

from kernel_dvfs_step.watchdog import Watchdog


@pytest.fixture
def dog():
    """(watchdog, what it said, an event that stands for the process's death)."""
    said, dead = [], threading.Event()
    return Watchdog(said.append, dead.set), said, dead


def test_what_ends_in_time_is_left_alone(dog):
    watch, said, dead = dog
    with watch.limit(0.2, "quick"):
        pass
    assert not dead.wait(0.4) and not said


def test_what_takes_too_long_ends_the_process_with_its_name(dog):
    watch, said, dead = dog
    watch.arm(0.05, "radix sort")
    assert dead.wait(5) and said == ["radix sort"]


def test_each_sign_of_life_puts_the_end_off(dog):
    watch, said, dead = dog
    for _ in range(5):
        watch.arm(0.3, "steady")
        assert not dead.wait(0.1)
    watch.disarm()
    assert not dead.wait(0.5) and not said


def test_the_process_is_killed():
    code = (
        "import time; from kernel_dvfs_step.watchdog import Watchdog\n"
        "Watchdog(lambda what: print(what, flush=True)).arm(0.1, 'hung kernel'); time.sleep(30)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.returncode == -9 and done.stdout == "hung kernel\n"
