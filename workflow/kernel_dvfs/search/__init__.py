"""Guided search: measure a tenth of the clock pairs, let a model say where the rest could still pay.

    candidates.py      what could be measured, what has been
    prior.py      what is public: how voltage rises with the clock, how large a kernel's parameters can be
    forward.py    time and power of many kernels at many pairs, with slopes
    fit.py        the GPU's constants and the parameters of every kernel, from measured points only
    posterior.py  what the fit leaves open: draws of the whole table of times and energies
    price.py      the price of time at which a budget binds, for many tables at once
    propose.py    the pairs that could still enter the optimum, and what is left unfound

It never sees a GPU's spec: on a simulated GPU that would be reading the answer. Constants are learnt from the measured
points of all kernels; the choice is made from measured points alone, the model only says what to measure next.
"""
