"""The simulated instance beside published measurements of serving, each with its error."""

import pandas as pd

CAPTION = "Serving on the simulated GPU beside published measurements; informed: a kernel family's figure rests on it"


def make(anchors: list) -> pd.DataFrame:
    """One row an anchors.Anchor. error_percent: ours against the published one."""
    frame = pd.DataFrame([anchor._asdict() for anchor in anchors])
    return frame.assign(error_percent=100 * (frame.ours / frame.published - 1))


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean absolute and mean error of each source, quantity and role."""
    groups = frame.groupby(["source", "quantity", "role"], sort=False).error_percent
    return pd.DataFrame(
        {"count": groups.size(), "mean_error_percent": groups.mean(), "mean_abs_error_percent": groups.apply(_absolute)}
    ).reset_index()


def _absolute(errors: pd.Series) -> float:
    return errors.abs().mean()


SUMMARY_CAPTION = "Errors of the simulated serving instance against published measurements, by source and quantity"
