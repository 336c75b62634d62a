"""What this package adds to the road: clocks put to work, and what of them can be set where a change takes time."""

from kernel_dvfs.command import command_of
from kernel_dvfs.extensions import Extension

EXTENSION = Extension(
    commands={
        "apply": command_of("kernel_dvfs_deploy.commands.apply", "run a command at chosen clocks, then restore them"),
        "tune": command_of(
            "kernel_dvfs_deploy.commands.tune", "find a training's clocks while it runs, keep them, then restore"
        ),
        "latency": command_of(
            "kernel_dvfs_deploy.commands.latency", "measure how long a GPU takes to change clocks, and stands still"
        ),
        "sequence": command_of(
            "kernel_dvfs_deploy.commands.sequence", "choose clocks launch by launch, where a change takes time"
        ),
        "study deployable": command_of(
            "kernel_dvfs_deploy.commands.deployable",
            "what can be deployed at known latencies: a list, and schedules to play",
        ),
    },
    outputs={"gpu": ("kernel_dvfs_deploy.tables",)},
    parts={
        "deployable": "kernel_dvfs_deploy.page:deployable",
        "deployment": "kernel_dvfs_deploy.page:deployment",
    },
    api={"play": "kernel_dvfs_deploy.playing:play", "tune": "kernel_dvfs_deploy.tune:tune"},
)
