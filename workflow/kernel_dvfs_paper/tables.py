"""The table of the paper's claims."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kernel_dvfs import shipped
from kernel_dvfs.layout import PUBLISHED, RELIED_ON, STRICT, published
from kernel_dvfs.outputs import MEASURED, Outputs
from kernel_dvfs.report import carried, tables
from kernel_dvfs.workload.models import MODELS

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results
    from kernel_dvfs_paper.claim import Claim

OUTPUTS = Outputs()


def _claims_inputs(plan: Any) -> list[str]:
    needed = [output for output in tables.OUTPUTS.made_by(plan) if output.procedure != RELIED_ON]
    files = [f"{plan.folder}/{output.files[0]}" for output in needed]
    beside = plan.elsewhere(plan.workload, published(STRICT), "validation")
    used = [os.path.relpath(shipped.POSTERIOR_CLAIMS)] if plan.is_simulated else []
    return [*plan.published_files(), *carried.strict_and_repeats(plan)[1:], *files, *beside, *used]


@OUTPUTS.table(
    "Claims of the paper (arXiv 2601.08539), each with a verdict computed from this study",
    title="The paper's claims, checked here",
    text="Each claim of arXiv 2601.08539 with its value, the numbers that this study found and the verdict that they "
    "give. In brackets: the rule that a number must keep for the claim to hold. Why: where it does not.",
    section="claims",
    # the paper speaks of GPT-3 with attention that is not fused: other kernels, or somebody's table, are no test of it
    procedure=PUBLISHED,
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=lambda plan: plan.options["model"] in MODELS,
    inputs=_claims_inputs,
)
def claims(results: Results) -> pd.DataFrame:
    """Return one row a claim: number, claim, source, paper, ours (numbers, in brackets the rule by which the claim
    holds), verdict (holds, differs, not testable), why (where it does not hold); of a board that was inferred from the
    paper also inferred (whether the claim was used for it, and is predicted)."""
    import pandas as pd

    from kernel_dvfs_paper import used as inferred

    rows = [claim.row(results) for claim in all_claims()]
    spec = results.setup(results.workload["setup"]).gpu["spec"] if results.gpu["kind"] == "simulated" else {}
    if used := inferred.claims_used(spec, results.workload["name"]):
        rows = [row | {"inferred": inferred.in_words(row["number"], row["verdict"], used)} for row in rows]
    return pd.DataFrame(rows)


def all_claims() -> list[Claim]:
    """Return all claims, in the order of their numbers."""
    from kernel_dvfs_paper import chosen, elsewhere
    from kernel_dvfs_paper.claim import Claim

    declared = [*vars(chosen).values(), *vars(elsewhere).values()]
    return sorted((claim for claim in declared if isinstance(claim, Claim)), key=lambda claim: claim.number)
