"""Chosen clocks put to work: a command run at them, passes that mark themselves, an iteration played launch by launch,
a captured step played in pieces.

A training script says in one line where a pass begins. The line does nothing unless `kernel-dvfs apply --pass-level`
runs the script:

    from kernel_dvfs_deploy import mark
    mark("forward")

A step that was captured runs at the clocks of its schedule, once repeats on the step itself have shown that they hold:

    from kernel_dvfs_deploy import play
    with play(step, "schedule.json") as run:
        run()
"""

from typing import TYPE_CHECKING, Any

from kernel_dvfs_deploy.marks import mark

if TYPE_CHECKING:
    from kernel_dvfs_deploy.playing import play

__all__ = ["mark", "play"]


def __getattr__(name: str) -> Any:
    # a script that only marks its passes need not import what playing takes
    if name == "play":
        from kernel_dvfs_deploy.playing import play

        return play
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
