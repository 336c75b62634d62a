"""A results folder as one page: self-contained HTML that can be mailed, printed and read on a phone.

Shows what the pipeline wrote: tables, schedules, records, figures.
"""

from kernel_dvfs.outputs import Output

STUDY_PAGE = Output(
    caption="The whole study as one page that can be mailed: the answer, warnings, clocks, tables, figures, claims, "
    "provenance.",
    formats=("html",),
)
COMPARISON_PAGE = Output(
    caption="Every GPU, specimen and workload in the results folder side by side, as one page.",
    formats=("html",),
)
