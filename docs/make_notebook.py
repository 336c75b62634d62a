"""Write docs/notebook.ipynb: run its cells, here, and keep what they print. `python docs/make_notebook.py`

The cells stand below; the file beside this one is what readers open. tests/docs/test_notebook.py holds it to what its
cells print now.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path

PATH = Path(__file__).parent / "notebook.ipynb"

CELLS = [
    """# Clocks that waste no energy, from Python

Needs `kernel-dvfs[tables]`; the last cell also `kernel-dvfs[figures]`. All numbers here are **simulated**.""",
    """import kernel_dvfs as kd

sweep = kd.simulate("h200_sxm", folder="sweep")  # every kernel of one iteration of GPT-3 XL, batch 40
print(sweep.kernels, "kernels at", sweep.pairs, "clock pairs")""",
    """Choose clocks for all kernels together: least energy, no slower than auto. A claim is optimistic, since the same
noisy data selected the clocks: measure the choice again.""",
    """schedule = kd.choose(str(sweep.profile), scope="global", objective="waste")
print(kd.summary(schedule))
print(kd.validate(sweep, schedule, repeats=5).words())""",
    """Less is left than was claimed: one sweep flatters. A study by clock finds clocks with some visits of the whole
iteration, and shows with others that they keep the limit.""",
    """shown = kd.by_clock(sweep)[0]
checked = kd.validate(sweep, shown, repeats=5)
print(kd.summary(shown))
print(checked.words())""",
    """How much more could be saved by those who may be slower?""",
    """for row in kd.frontier(str(sweep.profile))["points"]:
    if row["scope"] == "global" and row["slack_percent"] in (0, 1, 5, 10):
        print(f"{row['slack_percent']:4g} % slower: {row['energy_change_percent']:+.1f} % energy (claimed)")""",
    """Which kernels make the saving? The page says so, and can be mailed.""",
    """print(kd.write_page("page.html", "sweep/by_clock.parquet", shown, checked))""",
    """A measured table from anywhere goes the same way: one row per kernel and pair of clocks.""",
    """from pathlib import Path

Path("mine.csv").write_text(\"\"\"kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto
product,,,10.0,3000,1
product,1400,5000,11.0,2500,0
norm,,,1.0,250,1
norm,1400,5000,1.0,200,0
\"\"\")
mine = kd.import_table("mine.csv", "mine.parquet")
print(kd.summary(kd.choose(str(mine))))""",
    """One kernel over all clocks:""",
    """plot = kd.plot("sweep/by_clock.parquet", "forward_gelu", [shown])
plot.save("forward_gelu.png", verbose=False)""",
]


def is_text(number: int) -> bool:
    """Whether a cell is prose: the first, and every other one after it."""
    return number % 2 == 0


def run(cells: list[str]) -> list[str]:
    """What each cell prints, "" for prose; all run in one namespace and in an empty folder."""
    names: dict = {}
    printed = []
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, cell in enumerate(cells):
                out = io.StringIO()
                if not is_text(number):
                    with contextlib.redirect_stdout(out):
                        exec(compile(cell, f"cell {number}", "exec"), names)
                printed.append(out.getvalue())
        finally:
            os.chdir(before)
    return printed


def notebook(cells: list[str], printed: list[str]) -> dict:
    """The notebook, format 4.5."""
    made = []
    for number, (cell, text) in enumerate(zip(cells, printed)):
        own: dict = {"id": f"cell-{number}", "metadata": {}, "source": cell.splitlines(keepends=True)}
        if is_text(number):
            made.append({"cell_type": "markdown"} | own)
            continue
        outputs = [{"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}] if text else []
        made.append({"cell_type": "code", "execution_count": number // 2 + 1, "outputs": outputs} | own)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def main() -> None:
    text = json.dumps(notebook(CELLS, run(CELLS)), indent=1, ensure_ascii=False) + "\n"
    PATH.write_text(text, encoding="utf-8")
    print(f"written: {PATH.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
