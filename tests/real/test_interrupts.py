"""Ctrl-C, or a kill, at any instant of a measurement: the same command goes on."""

import os
import random
import signal
import subprocess
import sys
import time

# more of them by hand: KERNEL_DVFS_INTERRUPTS=100
INTERRUPTS = int(os.environ.get("KERNEL_DVFS_INTERRUPTS", "4"))


def test_the_same_command_goes_on_after_an_interrupt_at_any_instant(lab):
    made, draw = lab(), random.Random(33)
    began_s = time.monotonic()
    done, _ = made.measure()
    whole_s = time.monotonic() - began_s
    assert done.returncode == 0, done.stderr
    words = ["measure", "--gpu", "nvml", "--target", "forward_gelu", "--clocks", "1500,2201", "-o", "r0.json"]
    for number in range(INTERRUPTS):
        if number % 2 == 0:
            made.stop()  # so that the next one is hit while it opens
        client = subprocess.Popen(
            [sys.executable, "-m", "kernel_dvfs", *words],
            env=made.environment(),
            cwd=made.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        at_s = draw.uniform(0, 1.1 * whole_s)
        time.sleep(at_s)
        client.send_signal(signal.SIGKILL if number % 3 == 0 else signal.SIGINT)
        client.wait()
        done, record = made.measure()
        assert done.returncode == 0 and record, f"interrupt {number}, at {at_s:.2f} of {whole_s:.2f} s: {done.stderr}"
