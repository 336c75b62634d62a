"""The map of the headline: the strict change of energy over tensor-core energy and traffic of dense products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.report.tables import headline_band

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Strict change of energy (negative = saved) over tensor-core energy and DRAM traffic of dense products, at "
    "each highest clock at auto; dot: default; thick line: the paper's value. Truth of the model without noise, exact "
    "choice",
    title="Where the headline may lie",
    text="Change of energy with no time lost over what nobody has measured. The dot is the default, the thick line the "
    "paper's value, where it is reached. On the model's truth, without noise, by the exact choice.",
    section="rests-on",
    place=1,
    formats=FIGURE_FORMATS,
    kinds=("simulated",),
    workload="model",
    of_choice=True,
    when=headline_band.OUTPUT.when,
    inputs=headline_band.OUTPUT.inputs,
)
PAPER_PERCENT = headline_band.PAPER_PERCENT["kernel"]
_STEP_PERCENT = 2.0  # between contours
_FINE = 61  # cells of the coloured ground along an axis
_X, _Y = "tensor_energy_pj", "gemm_traffic"


def draw(results: Results) -> p9.ggplot:
    """From headline_map.csv: a panel for each highest clock at auto, the default marked in that of its own."""
    import plotnine as p9

    from kernel_dvfs.report import style

    found = results.headline_map.assign(change=lambda frame: frame.kernel_energy_change_percent)
    default = found[found.is_default].assign(text=lambda one: f"default: {one.change.iloc[0]:+.1f} %")
    clocks = sorted(found.auto_core_mhz.unique())
    ground, lines, labels, default = (_with_panels(frame, clocks) for frame in (*surface(found), default))
    paper, others = lines[lines.is_paper], lines[~lines.is_paper]
    middle = (found[_X].min() + found[_X].max()) / 2
    side = "left" if default[_X].iloc[0] < middle else "right"
    reached = "the thick line" if len(paper) else "not reached anywhere here"
    return (
        p9.ggplot(ground, p9.aes(_X, _Y))
        + p9.geom_raster(p9.aes(fill="change"))
        + p9.geom_path(p9.aes(group="line"), others, color="white", size=0.35, alpha=0.8)
        + p9.geom_path(p9.aes(group="line"), paper, color=style.SERIES[1], size=1.2)
        + p9.geom_text(p9.aes(label="text"), labels, color="white", size=style.SMALL_PT - 0.5)
        + p9.geom_point(data=default, color="white", fill=style.INK, shape="o", size=2.6, stroke=0.7)
        + p9.geom_label(p9.aes(label="text"), default, ha=side, nudge_y=0.25, size=style.SMALL_PT, label_padding=0.15)
        + p9.facet_wrap("panel", nrow=1)
        + p9.scale_fill_gradientn(
            style.GAIN[::-1], limits=(min(found.change.min(), PAPER_PERCENT), max(0.0, found.change.max()))
        )
        + p9.scale_x_continuous(expand=(0, 0))
        + p9.scale_y_continuous(expand=(0, 0))
        + p9.labs(
            title="The strict saving, over what nobody has measured",
            subtitle=style.subtitle(results, "darker"),
            x="energy of a tensor-core FLOP at the lowest voltage, pJ",
            y="DRAM traffic of dense products,\ntimes each operand once",
            fill="change of energy, %\n(negative: saved)",
            caption=f"Strict: no time lost. Contours: every {_STEP_PERCENT:g} points; the paper's {PAPER_PERCENT:g} %: "
            f"{reached}.\nTruth of the model without noise, exact choice.",
        )
        + style.theme(2.9, style.WIDE)
        + p9.theme(legend_key_width=110, legend_key_height=7)
    )


def surface(box: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """(ground, lines, labels): the changes of each highest clock, bilinear between the points of `box`, and contours.

    box: the map, with `change` (percent). Each has the columns of the two axes and auto_core_mhz;
    ground `change`, lines `line` (its name) and `is_paper` (the contour of the paper's value), labels `text`.
    """
    import numpy as np
    import pandas as pd
    from contourpy import contour_generator

    def frame(x: np.ndarray, y: np.ndarray, mhz: float, **more: object) -> pd.DataFrame:
        return pd.DataFrame({_X: x, _Y: y, "auto_core_mhz": mhz, **more})

    nothing = np.array([])
    grounds, lines, labels = [], [], []
    for mhz, part in box.groupby("auto_core_mhz"):
        grid = part.pivot(index=_Y, columns=_X, values="change")
        x, y = grid.columns.to_numpy(), grid.index.to_numpy()
        fine_x, fine_y = (np.linspace(axis[0], axis[-1], _FINE) for axis in (x, y))
        along = np.array([np.interp(fine_x, x, row) for row in grid.to_numpy()])
        change = np.array([np.interp(fine_y, y, column) for column in along.T]).T
        cells_x, cells_y = np.meshgrid(fine_x, fine_y)
        grounds.append(frame(cells_x.ravel(), cells_y.ravel(), mhz, change=change.ravel()))
        contours = contour_generator(fine_x, fine_y, change)
        levels = -_STEP_PERCENT * np.arange(1, np.ceil(-change.min() / _STEP_PERCENT))
        for level in (*levels, PAPER_PERCENT):
            found: Any = contours.lines(level)  # its type depends on a setting
            for number, line in enumerate(found):
                is_paper = level == PAPER_PERCENT
                lines.append(frame(line[:, 0], line[:, 1], mhz, line=f"{mhz} {level} {number}", is_paper=is_paper))
                if len(line) > _FINE / 4 and not is_paper:
                    middle = line[[len(line) // 2]]
                    labels.append(frame(middle[:, 0], middle[:, 1], mhz, text=f"{level:g}"))
    return (
        pd.concat(grounds),
        pd.concat([frame(nothing, nothing, 0.0, line="", is_paper=nothing.astype(bool)), *lines]),
        pd.concat([frame(nothing, nothing, 0.0, text=""), *labels]),
    )


def _with_panels(frame: pd.DataFrame, clocks: list[float]) -> pd.DataFrame:
    import pandas as pd

    names = {mhz: f"auto: at most {mhz:g} MHz" for mhz in clocks}
    return frame.assign(panel=pd.Categorical(frame.auto_core_mhz.map(names), list(names.values())))
