"""Clocks for a whole iteration, launch by launch, where a change of clocks takes time.

An iteration is a known sequence of launches, run again and again. `launches.py` makes it from a profile, `timing.py`
says how long a change takes and what the launches do meanwhile, `programme.py` chooses with a bound, `replay.py`
plays a choice event by event, `baselines.py` has what it is compared with. Knows profiles and nothing of boards.

    from kernel_dvfs.sequence.launches import read_sequence
    from kernel_dvfs.sequence.programme import choose_changes
    from kernel_dvfs.sequence.timing import Timing
"""
