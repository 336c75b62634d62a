"""`kernel-dvfs step trace`, `kernel-dvfs hooks ...`: joules where people look."""

from kernel_dvfs.command import command_of

STEP = {
    "trace": command_of(
        "kernel_dvfs_hooks.commands.trace", "write an iteration as a trace with joules a launch, for Perfetto"
    )
}

COMMANDS = {
    "vllm": command_of(
        "kernel_dvfs_hooks.commands.vllm", "joules a token of a running vLLM, for a terminal or Prometheus"
    ),
    "pods": command_of(
        "kernel_dvfs_hooks.commands.pods", "print the broker as a DaemonSet, or a pod that runs at clocks"
    ),
}
