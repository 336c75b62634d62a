"""What is measured next: the loop of search, race and walk, and a guided search that measures a tenth of the points.

    loop.py         propose, measure, pool, until nothing is left to ask for
    search_file.py  what a loop asked for and which records it read, as a file
    race.py         which clocks to measure next, and which schedule is shown to keep its time limit
    guided.py       the guided search in rounds, on the rows of a profile
    propose.py      the pairs that could still enter the optimum, and what is left unfound
    candidates.py   what could be measured, what has been
    gpu_model.py    time and power of kernels at clocks, with slopes; what is public about GPUs
    fit.py          the GPU's constants and the parameters of every kernel, from measured points only
    posterior.py    what the fit leaves open: draws of the whole table of times and energies

The guided search never sees a GPU's spec: on a simulated GPU that would be reading the answer. Constants are learnt
from the measured points of all kernels; the choice is made from measured points alone, the model only says what to
measure next.
"""
