"""Chosen clocks put to work: a command run at them, passes that mark themselves, an iteration played launch by launch.

A training script says in one line where a pass begins. The line does nothing unless `kernel-dvfs apply --pass-level`
runs the script:

    from kernel_dvfs.deploy import mark
    mark("forward")
"""

from kernel_dvfs.deploy.marks import mark

__all__ = ["mark"]
