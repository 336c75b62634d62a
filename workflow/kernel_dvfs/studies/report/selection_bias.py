"""The table of the selection bias study: claimed, validated and true change of each procedure, means over its seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = Output(
    caption=(
        "Choosing from noisy measurements, the same studies by each procedure: mean change of time and energy in "
        "percent of auto as claimed by the data that chose, in validation repeats and in truth (the expectation over "
        "all that is drawn); coverage = share of studies in which their 95 % interval holds the truth, each "
        "repeat in a session of its own (interval over sessions), or all of them in one session (interval within it); "
        "rounds = of measuring again, mean; over budget = share whose true time exceeds the limit"
    ),
    kinds=("simulated",),
)


def make(studies: pd.DataFrame, limit_percent: float) -> pd.DataFrame:
    """One row for each noise and procedure. studies: one for each study, of studies.selection_bias.rows."""
    import pandas as pd

    return pd.DataFrame(
        [
            {"noise": noise, "procedure": procedure, **_row(own, limit_percent)}
            for (noise, procedure), own in studies.groupby(["noise", "procedure"], sort=False)
        ]
    )


def _row(own: pd.DataFrame, limit_percent: float) -> dict[str, float]:
    row = {
        "studies": len(own),
        "first_seed": own.seed.min(),
        "rounds": own.rounds.mean(),
        "windows": own.windows.mean(),
        "fresh_windows": own.fresh_windows.mean(),
    }
    for quantity in ("time", "energy"):
        claimed, fresh, half, true = (
            own[f"{quantity}_{name}_percent"] for name in ("claimed", "fresh", "half", "true")
        )
        together, together_half = (own[f"{quantity}_{name}_percent"] for name in ("together", "together_half"))
        row |= {
            f"{quantity}_claimed_percent": claimed.mean(),
            f"{quantity}_fresh_percent": fresh.mean(),
            f"{quantity}_true_percent": true.mean(),
            # of the truth, so that the scatter of validation repeats plays no part
            f"{quantity}_optimism_pp": (true - claimed).mean(),
            f"{quantity}_half_width_pp": half.mean(),
            f"{quantity}_coverage": ((fresh - true).abs() <= half).mean(),
            f"{quantity}_half_width_in_one_session_pp": together_half.mean(),
            f"{quantity}_coverage_in_one_session": ((together - true).abs() <= together_half).mean(),
        }
    return row | {"over_budget": (own.time_true_percent > limit_percent).mean()}
