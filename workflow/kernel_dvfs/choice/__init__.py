"""Choice of clocks: which setting of which target saves most energy, exactly and with proof.

Reads profiles (tables of time and energy per target and setting); knows nothing of GPUs, kernels or Snakemake.

    from kernel_dvfs.choice.schedule import choose          # profile in, schedule (JSON-ready dict) out
    from kernel_dvfs.choice.frontier import relaxed_frontier   # profile in, energy against slowdown out
    from kernel_dvfs.choice.problem import Problem          # arrays in
    from kernel_dvfs.choice.scopes import solve             # single, local, global x waste, edp, energy

Why there is an exact solver of our own (global_waste.py): the global choice is a multiple-choice knapsack, which a
12-line CP-SAT model also solves. On the sizes of a workload (46 targets x 57 options) that model finds the same choice
9 to 270 times slower, on most instances about a hundred times. At 1,000 targets x 640 options it finds no choice at
all within a minute, where our solver needs a fifth of a second. experiments/benchmarks/global_choice.py
measures this (experiments/results/global_choice.txt). A refined study solves such problems hundreds of times, a
frontier at every slack, so the difference is felt. CP-SAT stays as an independent witness (certificate.py).
"""
