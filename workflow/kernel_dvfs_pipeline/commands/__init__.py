"""`kernel-dvfs pipeline ...`: plans for a training pipeline from a CSV of stages, and the steps of a pipeline study."""

from kernel_dvfs.command import command_of

COMMANDS = {
    "measure": command_of(
        "kernel_dvfs_pipeline.commands.measure",
        "a training's stages at each clock, and what waiting draws; in each rank of a torchrun",
        talks=True,
    ),
    "run": command_of(
        "kernel_dvfs_pipeline.commands.run",
        "a training at a plan's clocks, and a certificate; in each rank of a torchrun",
        talks=True,
    ),
    "frontier": command_of(
        "kernel_dvfs_pipeline.commands.frontier", "a pipeline's whole frontier of time against energy, as CSV"
    ),
    "plan": command_of(
        "kernel_dvfs_pipeline.commands.plan", "clocks for every instruction: by time, straggler, energy or price"
    ),
    "graph": command_of(
        "kernel_dvfs_pipeline.commands.graph", "operations and edges of a schedule, to change and give to --schedule"
    ),
    "replay": command_of(
        "kernel_dvfs_pipeline.commands.replay", "iterations with several, changing stragglers: time and energy"
    ),
    "export": command_of(
        "kernel_dvfs_pipeline.commands.export", "a plan as plain CSV, or as Zeus's pipeline-frequency server loads it"
    ),
    "profile": command_of(
        "kernel_dvfs_pipeline.commands.profile", "stages of a study, from a CSV or a profile of kernels"
    ),
    "solve": command_of("kernel_dvfs_pipeline.commands.solve", "solve a study for one number of microbatches"),
}
