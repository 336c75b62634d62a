"""`kernel-dvfs serving ...`: a simulated instance, traces through serving systems, tables and figures of a study."""

from kernel_dvfs.command import command_of

COMMANDS = {
    "profile": command_of(
        "kernel_dvfs_serving.commands.profile", "power and latencies of a served model over load, simulated"
    ),
    "trace": command_of(
        "kernel_dvfs_serving.commands.trace", "check and sum up a trace of requests, or make a synthetic one"
    ),
    "replay": command_of("kernel_dvfs_serving.commands.replay", "replay a trace through one serving system"),
    "import": command_of(
        "kernel_dvfs_serving.commands.import_runs", "a profile from a server's own benchmark and a log of power"
    ),
    "plan": command_of("kernel_dvfs_serving.commands.plan", "servers, degree and clock for a trace or given loads"),
    # called by rules
    "anchors": command_of(
        "kernel_dvfs_serving.commands.anchors", "published measurements, and the same simulated", False
    ),
    "table1": command_of("kernel_dvfs_serving.commands.table1", "DynamoLLM's Table I, and the same simulated", False),
    "study": command_of("kernel_dvfs_serving.commands.study", "a folder for a study of serving systems", False),
    "experiment": command_of("kernel_dvfs_serving.commands.experiment", "run one experiment of a serving study", False),
}
