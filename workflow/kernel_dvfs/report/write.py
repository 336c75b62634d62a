"""A table on disk: CSV for programs, Markdown and LaTeX for people, each saying what GPU the numbers come from."""

from pathlib import Path

from pandas import isna

from kernel_dvfs.files import write_text


def write_table(frame, folder, name: str, caption: str, subject: str, formats=("csv", "md", "tex")) -> None:
    """Write `frame` to `<folder>/tables/<name>.<format>`, each whole or not at all.

    subject: the GPU as captions name it, e.g. "simulated RTX 3080 Ti"; a last column `gpu` in the CSV, part of the
    caption elsewhere.
    """
    base = Path(folder) / "tables" / name
    title = f"{caption} ({subject})"
    for form in formats:
        if form == "csv":
            text = frame.assign(gpu=subject).to_csv(index=False, lineterminator="\n")
        elif form == "md":
            text = f"**{title}**\n\n{_readable(frame).to_markdown(index=False, disable_numparse=True)}\n"
        else:
            text = _readable(frame).to_latex(index=False, caption=title, label=f"tab:{name}", escape=True)
        write_text(f"{base}.{form}", text)


def _readable(frame):
    """Numbers as a reader wants them: two decimals, a dash for nothing."""
    return frame.map(_cell).rename(columns=lambda name: name.replace("_", " "))


def _cell(value) -> str:
    if isna(value):
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 1e5 else f"{value:.0f}"
    return str(value)
