"""What the package says of itself: its version, the names that it offers, and where it lies. Imports nothing of it."""

import os

VERSION = "0.1.0"

# the folder that holds the package, which a process that is started from here must find it in
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# what kernel_dvfs.api offers, and `import kernel_dvfs` too
NAMES = (
    "InputError",
    "capture",
    "choose",
    "frontier",
    "import_table",
    "load_profile",
    "play",
    "plot",
    "simulate",
    "summary",
    "validate",
    "write_page",
)
