"""What this package adds to the road: the table of the paper's claims."""

from kernel_dvfs.extensions import Extension

EXTENSION = Extension(
    outputs={"gpu": ("kernel_dvfs_paper.tables",)},
    sections={"claims": (60, "The paper's claims, as published")},
)
