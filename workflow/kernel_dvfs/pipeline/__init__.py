"""The time-energy frontier of a training pipeline (Perseus, SOSP 2024): exact, and as published beside it.

A study beside the road. It uses workloads, GPUs and the choice's geometry; nothing but reports and commands imports it.
Start at `planner.Planner`: profile and schedule in, frontier and plans out.

One iteration is a graph of operations (forward and backward passes of microbatches on stages); a clock sets an
operation's time t and energy e. A stage that waits draws P_blk, so a plan that is done after T takes
    E = sum e + P_blk (S T - sum t) = sum c + P_blk S T,  c = e - P_blk t: the effective energy.
Times inside are whole ticks (`ticks.py`), so that a promise is kept exactly; files and arguments are in seconds.
"""
