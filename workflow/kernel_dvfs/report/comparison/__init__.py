"""What every GPU and workload in a results folder has in common: tables over all of them, in `results/comparison`.

One module a table: `OUTPUT`, `make(results_root)` and `to_markdown(frame)`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernel_dvfs.files import write_text
from kernel_dvfs.outputs import modules


def write(results_root: str | Path, *names: str) -> None:
    """Write the named tables, by default all, to `<results_root>/comparison/<name>.csv` and `.md`."""
    tables = modules(sys.modules[__name__])
    for name in names or tables:
        table = tables[name]
        frame = table.make(results_root)
        base = Path(results_root) / "comparison" / name
        write_text(f"{base}.csv", frame.to_csv(index=False, lineterminator="\n"))
        write_text(f"{base}.md", f"**{table.OUTPUT.caption}**\n\n{table.to_markdown(frame)}\n")
