"""A table or a figure on disk, each saying what GPU its numbers come from. Files are whole or not at all.

Tables: their rows as JSON, which is what is read; CSV, Markdown and LaTeX for people. Figures:
PDF and PNG, the same bytes each time.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_dvfs.outputs import FORMATS, Output
from kernel_dvfs.report.headings import headings
from kernel_dvfs.table_file import write_rows
from kernel_dvfs_clocks.files import whole, write_text

if TYPE_CHECKING:
    import pandas as pd
    from plotnine import ggplot


# matplotlib keeps its settings and open figures once a process, and whoever calls this may have several threads
_DRAWING = threading.Lock()


def write(content: pd.DataFrame | ggplot, output: Output, folder: str | Path, subject: str) -> None:
    """Write a table or a figure to where it belongs in a study's folder. subject: whose numbers these are."""
    writer: Any = {"table": write_table, "figure": write_figure}[output.kind]
    writer(content, folder, output.name, output.captioned, subject)


def write_table(frame: pd.DataFrame, folder: str | Path, name: str, caption: str, subject: str) -> None:
    """Write `frame` to `<folder>/tables/<name>.<format>`: its rows as json, which is what is read; csv, md and tex.

    subject: the GPU as captions name it, e.g. "simulated RTX 3080 Ti"; a last column `gpu` in the CSV, part of the
    caption elsewhere. A frame with a column `gpu` of its own keeps it, for rows of several GPUs.
    """
    base = Path(folder) / "tables" / name
    title = f"{caption} ({subject})"
    rows = frame if "gpu" in frame else frame.assign(gpu=subject)
    write_rows(f"{base}.json", rows.astype(object).to_dict("records"))
    write_text(f"{base}.csv", rows.to_csv(index=False, lineterminator="\n"))
    words = _readable(frame)
    write_text(f"{base}.md", f"**{title}**\n\n{words.to_markdown(index=False, disable_numparse=True)}\n")
    write_text(f"{base}.tex", words.to_latex(index=False, caption=latex(title), label=f"tab:{name}", escape=True))


_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}"}
)


def latex(text: str) -> str:
    """Return text for LaTeX that is set as it stands: pandas escapes cells, but no caption."""
    return text.translate(_LATEX)


def _readable(frame: pd.DataFrame) -> pd.DataFrame:
    """Return numbers as a reader wants them, two decimals and a dash for nothing, below headings with units."""
    return frame.map(_cell).rename(columns=headings(frame.columns))


def _cell(value: Any) -> str:
    from pandas import isna

    if isna(value):
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 1e5 else f"{value:.0f}"
    return str(value)


def write_figure(plot: ggplot, folder: str | Path, name: str, caption: str, subject: str) -> None:
    """Draw `plot` to `<folder>/figures/<name>.pdf` and `.png`.

    subject: the GPU as captions name it, e.g. "simulated RTX 3080 Ti"; in the metadata of both: title and subject of
    the PDF, Title and Description of the PNG.
    """
    import matplotlib

    title = f"{name} ({subject})"
    description = f"{caption} ({subject})"
    metadata = {
        # no date, no version of the drawing library: the same numbers give the same bytes
        "pdf": {
            "Title": title,
            "Subject": description,
            "Creator": "kernel-dvfs",
            "Producer": None,
            "CreationDate": None,
        },
        "png": {"Title": title, "Description": description, "Software": "kernel-dvfs"},
    }
    # a kernel may be called $x$, and is no formula
    with _DRAWING, matplotlib.rc_context({"pdf.fonttype": 42, "text.parse_math": False}):
        matplotlib.use("agg")  # no window system, whatever the machine has
        for form in FORMATS["figure"]:
            with whole(Path(folder) / "figures" / f"{name}.{form}") as temporary:
                # drawn once for each: plotnine sizes a colour bar for the resolution that it is first saved at
                plot.save(temporary, metadata=metadata[form], verbose=False)
