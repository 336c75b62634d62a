"""The H200 table in the documentation is the one that the result files give."""

import sys


def test_the_documented_table_is_that_of_the_result_files(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "benchmarks")
    monkeypatch.delitem(sys.modules, "gpu_table", raising=False)
    import gpu_table

    table = gpu_table.table()
    assert table.count("\n") == 47, "head, rule and 46 rows"
    assert table in (root / "docs" / "native.md").read_text(encoding="utf-8")
