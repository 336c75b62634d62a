"""A figure on disk: PDF and PNG, whole or not at all, the same bytes each time, each saying whose numbers it shows."""

from pathlib import Path

import matplotlib

from kernel_dvfs.files import whole
from kernel_dvfs.layout import FIGURE_FORMATS


def write_figure(plot, folder, name: str, caption: str, subject: str) -> None:
    """Draw `plot` to `<folder>/figures/<name>.pdf` and `.png`.

    subject: the GPU as captions name it, e.g. "simulated RTX 3080 Ti"; in the metadata of both: title and subject of
    the PDF, Title and Description of the PNG.
    """
    matplotlib.use("agg")  # no window system, whatever the machine has
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
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        for form in FIGURE_FORMATS:
            with whole(Path(folder) / "figures" / f"{name}.{form}") as temporary:
                # drawn anew for each: plotnine sizes a colour bar for the resolution that it is first saved at
                plot.save(temporary, metadata=metadata[form], verbose=False)
