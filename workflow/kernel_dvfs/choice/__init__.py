"""Choice of clocks: which setting of which target saves most energy, exactly and with proof.

Knows profiles (tables of time and energy per target and setting) and nothing of GPUs, kernels or Snakemake.

    from kernel_dvfs.choice.schedule import choose          # profile in, schedule (JSON-ready dict) out
    from kernel_dvfs.choice.problem import Problem          # arrays in
    from kernel_dvfs.choice.scopes import solve             # single, local, global x waste, edp, energy
"""
