"""Published measurements of serving, the same of the simulated instance, and its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Serving on the simulated GPU compared with published measurements; informed: a kernel family's figure rests on it",
    inputs=lambda plan: plan.reads("anchors"),
)


def make(study: ServingStudy) -> pd.DataFrame:
    """One row an anchors.Anchor. error_percent: ours against the published one."""
    import pandas as pd

    frame = pd.DataFrame(study.experiment("anchors")["anchors"])
    return frame.assign(error_percent=100 * (frame.ours / frame.published - 1))


def subject(study: ServingStudy) -> str:
    """Whose numbers these are."""
    return study.experiment("anchors")["subject"]
