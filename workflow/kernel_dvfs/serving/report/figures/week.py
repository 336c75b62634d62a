"""Power over a synthetic week."""

import textwrap

import pandas as pd
import plotnine as p9

from kernel_dvfs.serving.report.figures import power
from kernel_dvfs.serving.report.tables.week import subject

CAPTION = "Power of all GPUs over a synthetic week, hourly means, by serving system"


def draw(study) -> p9.ggplot:
    """A line a system."""
    runs = study.experiment("week")
    frame = pd.concat([power.over_time(each, 3600.0) for each in runs])
    text = textwrap.fill(f"{subject(study)}, {study['settings']['servers']} servers", 72)
    return power.plot(frame, text, 86_400.0, "time, days")
