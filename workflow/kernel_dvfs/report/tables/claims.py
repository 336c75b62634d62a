"""The table of claims: each claim of the paper in order, with its numbers and the verdict that they give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_dvfs.outputs import MEASURED, Output
from kernel_dvfs.workload.models import MODELS

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.claims.claim import Claim
    from kernel_dvfs.report.results import Results


def _inputs(plan: Any) -> list[str]:
    tables = [f"{plan.folder}/tables/{name}.csv" for name in plan.tables() if name != "claims"]
    return [*plan.schedule_files(), *tables, *plan.elsewhere(plan.workload)]


OUTPUT = Output(
    caption="Claims of the paper (arXiv 2601.08539), each with a verdict computed from this study",
    title="The paper's claims, checked here",
    text="Each claim of arXiv 2601.08539 with its value, the numbers that this study found and the verdict that they "
    "give. In brackets: the rule that a number must keep for the claim to hold. Why: where it does not.",
    section="claims",
    # the paper speaks of GPT-3 with attention that is not fused: other kernels, or somebody's table, are no test of it
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=lambda plan: plan.options["model"] in MODELS,
    inputs=_inputs,
)


def make(results: Results) -> pd.DataFrame:
    """One row a claim: number, claim, source, paper, ours (numbers, in brackets the rule by which the claim holds),
    verdict (holds, differs, within what is unmeasured, not testable), why (where it does not hold)."""
    import pandas as pd

    return pd.DataFrame([each.row(results) for each in claims()])


def claims() -> list[Claim]:
    """All claims, in the order of their numbers."""
    from kernel_dvfs.report.claims import chosen, elsewhere
    from kernel_dvfs.report.claims.claim import Claim

    declared = [*vars(chosen).values(), *vars(elsewhere).values()]
    return sorted((each for each in declared if isinstance(each, Claim)), key=lambda each: each.number)
