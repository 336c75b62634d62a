"""Clocks for a whole iteration, launch by launch, where a change of clocks takes time.

An iteration is a known sequence of launches that is run again and again. `launches.py` makes it from a profile,
`changes.py` says what a choice is, how long a change takes and what the launches do meanwhile, `programme.py` chooses
with a bound, `replay.py` plays a choice event by event, and `baselines.py` has the choices that it is compared with.

    from kernel_dvfs_deploy.sequence.changes import Timing
    from kernel_dvfs_deploy.sequence.launches import read_sequence
    from kernel_dvfs_deploy.sequence.programme import choose_changes
"""
