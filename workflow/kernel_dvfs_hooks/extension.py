"""What this package adds to the road: commands for trainers, servers, pods and the trace of a step."""

from kernel_dvfs.extensions import Extension

EXTENSION = Extension(
    groups={
        "hooks": ("joules and clocks where people train and serve", "kernel_dvfs_hooks.commands:COMMANDS"),
        "step": ("joules of each kernel of a training step", "kernel_dvfs_hooks.commands:STEP"),
    },
    needs=("deploy",),
)
