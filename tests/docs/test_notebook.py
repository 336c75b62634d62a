"""The notebook runs from its first cell to its last and prints what it shows."""

import json

import pytest


@pytest.fixture(scope="module")
def maker(script):
    return script("docs/make_notebook.py")


@pytest.mark.nightly
@pytest.mark.slow
def test_the_notebook_shows_what_its_cells_print_now(root, maker):
    shown = json.loads((root / "docs/notebook.ipynb").read_text("utf-8"))
    printed = maker.run(maker.CELLS)
    assert shown == maker.notebook(maker.CELLS, printed), "python docs/make_notebook.py"
    said = "".join(printed)
    assert "46 kernels" in said and "measured again 5 times" in said and "page.html" in said


def test_every_name_of_the_library_that_the_notebook_uses_is_one_of_the_dozen(maker):
    import re

    from kernel_dvfs import api

    used = set(re.findall(r"\bkd\.(\w+)", "\n".join(maker.CELLS)))
    assert used <= set(api.__all__) and len(used) >= 7
