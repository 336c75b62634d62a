"""One target at one clock pair, measured by protocol and recorded.

A simulated study starts thousands of measurement jobs, so what they import counts. Records that such a job needs are
class-syntax `typing.NamedTuple` here and in `gpu/`, since importing `dataclasses` costs each job 8 ms; numpy, pandas
and Snakemake are never imported (tests/measurement/test_lightness.py).
"""
