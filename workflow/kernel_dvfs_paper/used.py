"""Which claims of the paper served to infer a simulated board, and what the others predict of each: shipped, as the
band of the headline is (kernel_dvfs.report.inference)."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from kernel_dvfs import shipped
from kernel_dvfs.report.inference import rows_of
from kernel_dvfs_paper.claim import DIFFERS, HOLDS

# claims that the simulated GPU was built to keep: the rule that folds a clock, a latency that is assumed
BUILT_IN = (5, 28)
_CLAIMED = ("claim", "group", "holds_without_group", "spec_digest", "workload")


def claims_used(spec: Mapping[str, Any], workload: str, path: str | PathLike[str] = "") -> dict[int, tuple[str, float]]:
    """Return {claim: (its group, share)} of the claims by which a board was inferred; {} of another board or workload.

    share: of the boards that were inferred without the claim's group, how many of a study's draws show it: from a half
    on the others predict it. path: the table; "": the one that is shipped. A CSV with a row a claim, columns claim,
    group, holds_without_group, spec_digest and workload, the last two as in `band_of`. Raises InputError for a file
    that is not such a table.
    """
    with rows_of(path or shipped.POSTERIOR_CLAIMS, spec, workload, "claims of an inference", _CLAIMED) as rows:
        used = {int(row["claim"]): (row["group"], float(row["holds_without_group"])) for row in rows}
        if not all(0 <= share <= 1 for _, share in used.values()):
            raise ValueError("a share is not within 0 and 1")
    return used


def in_words(claim: int, verdict: str, used: Mapping[int, tuple[str, float]]) -> str:
    """Return in words whether a claim served to infer the board and is predicted. verdict: of this study."""
    if claim in used:
        group, share = used[claim]
        right = "right" if share >= 0.5 else "wrong"
        return f"used; predicted {right} without those on {group} ({100 * share:.0f} % of draws)"
    if claim in BUILT_IN:
        return "built in"
    return {HOLDS: "not used; predicted right", DIFFERS: "not used; predicted wrong"}.get(verdict, "")
