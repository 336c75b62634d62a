"""The time-energy frontier of a training pipeline (Perseus, SOSP 2024), exact; and as published, to compare with.

A room of its own. It uses workloads, GPUs and the choice's geometry; only commands and its rules import it. Start at
`planner.Planner`: profile and schedule in, frontier and plans out.

profile    stage_profile, stages_from_kernels: time and energy of each stage's instructions at each clock
model      curve (one operation), graph (all of them, in order), frontier (exact, and queries of it)
plans      planner, rounding, runtime; baselines, published (other methods); slow_changes (changes of clocks take time)
training   recording, measuring (stages of one's own); reach (clocks that can be reached in time, spreads says when);
           following, executor (a plan asked for while it trains), stragglers; torch_stages (torch alone), training
study      study_plan (configuration -> names of files), solver (its numbers, and their checks),
           steps (numbers -> files), study (reads the files)
report     tables and figures, from the records alone

One iteration is a graph of operations (forward and backward passes of microbatches on stages); a clock sets an
operation's time t and energy e. A stage that waits draws P_blk, so a plan that is done after T takes
    E = sum e + P_blk (S T - sum t) = sum c + P_blk S T,  c = e - P_blk t: the effective energy.
Times inside are whole ticks (`curve.py`), so that a promise is kept exactly; files and arguments are in seconds.
"""
