"""Names in a results folder that both the workflow and the report rely on."""

# tables/<name>.<format>
TABLE_FORMATS = {
    "baseline": ("csv", "md"),
    "kernel_clocks": ("csv", "md", "tex"),
    "strategies": ("csv", "md", "tex"),
    "passes": ("csv", "md"),
    "locking": ("csv", "md"),
    "relaxed": ("csv",),
    "validation": ("csv", "md"),
    "headline": ("csv", "md"),
    "data_parallelism": ("csv", "md"),
    "tensor_parallelism": ("csv", "md"),
    "tensor_energy": ("csv", "md"),
    "omitted_pairs": ("csv",),
    "claims": ("csv", "md"),
}
FIGURE_FORMATS = ("pdf", "png")

# of the pipeline study: tables/<name>.csv and .md
PIPELINE_TABLES = ("no_straggler", "straggler", "emulation", "breakdown", "levels", "switching", "certificate")

# on a real GPU, auto is compared with the highest clocks this often
LOCKING_REPEATS = 3

# schemas of schedules and of frontiers, which are also read where nothing heavy may be imported
SCHEDULE = "kernel-dvfs/schedule/1"
ITERATION_SCHEDULE = "kernel-dvfs/iteration-schedule/1"
FRONTIER = "kernel-dvfs/frontier/1"

# the schedule that is validated and carried over, and its coarse counterpart
STRICT = "kernel-global-waste-slack0"
PASS_STRICT = "pass-global-waste-slack0"


def fresh_repeats(schedule: str, repeats: int) -> list:
    """The records of a schedule's fresh repeats, in a results folder."""
    name = "validation" if schedule == STRICT else f"validation-{schedule}"
    return [f"measurements/{name}/repeat-{repeat}.json" for repeat in range(repeats)]
