"""Figure 2: how desirable a pair of clocks is by EDP and by waste. Definitions only: no measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="How desirable a change of time and energy is: by EDP a loss of time can be paid with energy, by waste it "
    "is discarded and saved time earns nothing. Definitions, not measurements",
    title="Figure 2. What EDP and waste reward",
    text="By definition, before any measurement: EDP lets a loss of time be paid with energy, waste does not.",
    section="choosing",
    place=2,
    formats=FIGURE_FORMATS,
    of_choice=True,
)

RANGE_PERCENT = 30
_STEP_PERCENT = 0.5
EDP, WASTE = "EDP", "waste"


def edp_score(time_change: np.ndarray, energy_change: np.ndarray) -> np.ndarray:
    """1 - (1 + dt)(1 + de), changes as fractions (paper, Eq. 1): the share of the EDP that is saved."""
    return 1 - (1 + time_change) * (1 + energy_change)


def waste_score(time_change: np.ndarray, energy_change: np.ndarray) -> np.ndarray:
    """Energy saved where no time is lost, else 0 = discarded (paper, section 3); changes as fractions."""
    import numpy as np

    return np.where((time_change <= 0) & (energy_change < 0), -energy_change, 0.0)


def scores() -> pd.DataFrame:
    """Both scores in percent over the plane of changes in percent; NaN where waste discards."""
    import numpy as np
    import pandas as pd

    # cells lie astride no axis, so that each is either loss or gain
    changes = np.arange(-RANGE_PERCENT + _STEP_PERCENT / 2, RANGE_PERCENT, _STEP_PERCENT)
    time, energy = (values.ravel() for values in np.meshgrid(changes, changes))
    waste = 100 * waste_score(time / 100, energy / 100)
    both = ((EDP, 100 * edp_score(time / 100, energy / 100)), (WASTE, np.where(waste > 0, waste, np.nan)))
    frames = [
        pd.DataFrame({"time_change_percent": time, "energy_change_percent": energy, "score": score, "rule": rule})
        for rule, score in both
    ]
    return pd.concat(frames).assign(rule=lambda frame: _rules(frame.rule))


def draw(results: Results) -> p9.ggplot:
    """Of `results` only the name of the GPU is read."""
    import numpy as np
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    time = np.linspace(-RANGE_PERCENT, RANGE_PERCENT, 121)
    even = pd.DataFrame({"x": time, "y": 100 * (1 / (1 + time / 100) - 1)}).query("y.abs() <= @RANGE_PERCENT")
    return (
        p9.ggplot(scores(), p9.aes("time_change_percent", "energy_change_percent"))
        + p9.geom_raster(p9.aes(fill="score"))
        + p9.geom_path(p9.aes("x", "y"), even.assign(rule=_rules([EDP] * len(even))), linetype="dashed", size=0.5)
        + p9.geom_hline(yintercept=0, size=0.25)
        + p9.geom_vline(xintercept=0, size=0.25)
        + p9.geom_text(p9.aes("x", "y", label="text", color="ink"), _notes(), size=style.SMALL_PT)
        + p9.facet_wrap("rule")
        + p9.scale_color_identity()
        + p9.scale_fill_gradientn(style.GAIN, limits=(-70, 70), breaks=[-60, -30, 0, 30, 60], na_value="white")
        + p9.scale_x_continuous(expand=(0, 0), breaks=[-20, 0, 20])
        + p9.scale_y_continuous(expand=(0, 0), breaks=[-20, 0, 20])
        + p9.coord_fixed()
        + p9.labs(
            title="What EDP rewards, and what waste rewards",
            subtitle=f"By definition, no data (study: {results.subject}).\nBetter: darker; waste: lower left only",
            x=style.TIME_CHANGE,
            y=style.ENERGY_CHANGE,
            fill="score, %\n(positive: rewarded)",
            caption="EDP: 1 − (1 + Δt)(1 + Δe), changes Δ relative to auto. Waste: energy\n"
            "saved if no time is lost, whatever the time gained; else discarded.",
        )
        + style.theme(2.9)
        + p9.theme(legend_key_width=110, legend_key_height=7)
    )


def _rules(names: list) -> pd.Categorical:
    import pandas as pd

    return pd.Categorical(names, [EDP, WASTE])


def _notes() -> pd.DataFrame:
    import pandas as pd

    from kernel_dvfs.report import style

    rows = [
        (19, -5, "score 0", style.INK, EDP),
        (-16, -18, "gain", "white", EDP),
        (16, 18, "loss", style.INK, EDP),
        (-15, -18, "gain", "white", WASTE),
        (15, -15, "time lost:\ndiscarded", style.INK, WASTE),
        (-15, 15, "energy lost:\ndiscarded", style.INK, WASTE),
        (15, 15, "both lost:\ndiscarded", style.INK, WASTE),
    ]
    notes = pd.DataFrame(rows, columns=["x", "y", "text", "ink", "rule"])
    return notes.assign(rule=_rules(notes.rule))
