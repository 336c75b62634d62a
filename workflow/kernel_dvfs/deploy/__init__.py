"""Chosen clocks put to work: a command run at them, passes that mark themselves, an iteration played launch by launch.

In a training script, one line where a pass begins; nothing happens unless `kernel-dvfs apply --pass-level` runs it:

    from kernel_dvfs.deploy import mark
    mark("forward")
"""

from kernel_dvfs.deploy.marks import mark

__all__ = ["mark"]
