"""The table of claims: each claim of the paper in order, with the verdict that its judge computes."""

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
    text="Each claim of arXiv 2601.08539 with its value, what this study found, a computed verdict and the reason.",
    section="claims",
    # the paper speaks of GPT-3 with attention that is not fused: other kernels, or somebody's table, are no test of it
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=lambda plan: plan.options["model"] in MODELS,
    inputs=_inputs,
)


def make(results: Results) -> pd.DataFrame:
    """One row a claim: number, claim, source, paper, ours, verdict (holds, differs, within what is unmeasured,
    not testable), why."""
    import pandas as pd

    return pd.DataFrame([_row(each, results) for each in claims()])


def claims() -> list[Claim]:
    """All claims, in the order of their numbers."""
    from kernel_dvfs.report.claims import (
        choice_scopes,
        headline,
        kernel_level,
        other_gpus,
        pass_level,
        remeasured,
    )

    topics = (headline, pass_level, kernel_level, choice_scopes, remeasured, other_gpus)
    return sorted((each for topic in topics for each in topic.CLAIMS), key=lambda each: each.number)


def _row(claim: Claim, results: Results) -> dict[str, Any]:
    from kernel_dvfs.report.claims import evidence
    from kernel_dvfs.report.claims.claim import DIFFERS, HOLDS, NOT_TESTABLE, UNMEASURED, NotTestable

    try:
        finding = claim.judge(results)
    except NotTestable as missing:
        ours, verdict, why = "not computed", NOT_TESTABLE, str(missing)
    else:
        verdict = {True: HOLDS, False: DIFFERS, None: UNMEASURED}[finding.holds]
        ours, why = finding.ours, finding.why
        if evidence.is_table(results):
            why += "; the kernels are those of a measured table, not the paper's"
    return {
        "number": claim.number,
        "claim": claim.text,
        "source": claim.source,
        "paper": claim.paper,
        "ours": ours,
        "verdict": verdict,
        "why": why,
    }
