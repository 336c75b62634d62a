"""What kernel_dvfs.api offers. Imports nothing, so that it can be told without what it takes."""

NAMES = (
    "InputError",
    "by_clock",
    "choose",
    "frontier",
    "import_table",
    "load_profile",
    "plot",
    "simulate",
    "summary",
    "validate",
    "write_page",
)
