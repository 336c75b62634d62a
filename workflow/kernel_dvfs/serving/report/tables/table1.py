"""Table I: published cells and simulated ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "DynamoLLM's Table I (Llama2-70B, 2K tokens/s; empty: promise broken) and a simulated instance: energy of a "
    "request's share of the power, and power times a request's lifetime",
    when=lambda plan: plan.has("table1"),  # with a given profile there is no simulated instance to compare
    inputs=lambda plan: plan.reads("table1"),
)


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a table1.Cell."""
    import pandas as pd

    return pd.DataFrame(study.experiment("table1")["cells"]).rename(columns={"class_": "class"})


def subject(study: ServingStudy) -> str:
    """Whose numbers these are."""
    return study.experiment("table1")["subject"]
