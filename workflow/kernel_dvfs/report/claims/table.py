"""The table of claims: each claim of the paper in order, with the verdict that its judge computes."""

import pandas as pd

from kernel_dvfs.report.claims import (
    carry_over,
    choice_scopes,
    evidence,
    headline,
    kernel_level,
    other_gpus,
    pass_level,
    power,
    repeats,
    switching,
)
from kernel_dvfs.report.claims.claim import DIFFERS, HOLDS, NOT_TESTABLE, Claim, NotTestable

CAPTION = "Claims of the paper (arXiv 2601.08539), each with a verdict computed from this study"
TOPICS = (
    headline,
    pass_level,
    kernel_level,
    choice_scopes,
    repeats,
    carry_over,
    other_gpus,
    switching,
    power,
)
CLAIMS = tuple(sorted((each for topic in TOPICS for each in topic.CLAIMS), key=lambda each: each.number))


def make(results) -> pd.DataFrame:
    """One row a claim: number, claim, source, paper, ours, verdict (holds, differs, not testable), why."""
    return pd.DataFrame([_row(each, results) for each in CLAIMS])


def _row(claim: Claim, results) -> dict:
    try:
        finding = claim.judge(results)
    except NotTestable as missing:
        ours, verdict, why = "not computed", NOT_TESTABLE, str(missing)
    else:
        ours, verdict, why = finding.ours, HOLDS if finding.holds else DIFFERS, finding.why
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
