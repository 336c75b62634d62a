"""The study by clock: which pair of clocks is visited next, and which schedule is shown to keep its time limit.

    by_clock.py    the procedure, as a generator: it asks for visits and is told what they measured
    prior.py       what may be expected of a board that nobody has seen
    belief.py      what is believed of all pairs after some were visited
    loop.py        the procedure on records: measure, keep, go on where it was stopped
    study_file.py  what was visited, chosen and shown, as a file

A search never sees a GPU's spec: on a simulated GPU that would be reading the answer.
"""
