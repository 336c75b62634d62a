"""What every GPU and workload in a results folder has in common: tables over all of them, in `results/comparison`.

One module a table: `OUTPUT`, `make(results_root)` and `to_markdown(frame)`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernel_dvfs.files import write_text
from kernel_dvfs.outputs import modules


def write(results_root: str | Path) -> None:
    """Write each table to `<results_root>/comparison/<name>.csv` and `.md`, each whole or not at all."""
    for name, table in modules(sys.modules[__name__]).items():
        frame = table.make(results_root)
        base = Path(results_root) / "comparison" / name
        write_text(f"{base}.csv", frame.to_csv(index=False, lineterminator="\n"))
        write_text(f"{base}.md", f"**{table.OUTPUT.caption}**\n\n{table.to_markdown(frame)}\n")
