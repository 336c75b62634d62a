"""What this package adds to the road: the capture of a training step, its kernels to measure, what is said of them."""

from kernel_dvfs.command import command_of
from kernel_dvfs.extensions import Extension

EXTENSION = Extension(
    commands={"capture": command_of("kernel_dvfs_step.commands", "capture a training step: what kernels it launches")},
    outputs={"gpu": ("kernel_dvfs_step.report.tables", "kernel_dvfs_step.report.figures")},
    sections={"step": (10, "Your step")},
    parts={
        "step answer": "kernel_dvfs_step.report.sums:step_answer",
        "step loads": "kernel_dvfs_step.loads:StepLoads",
        "step python": "kernel_dvfs_step.interpreter:check",
        "step view": "kernel_dvfs_step.report.view:step_view",
    },
    api={"capture": "kernel_dvfs_step.api:capture"},
)
