"""The H200 table in the documentation is the one that the result files give."""

from experiments.benchmarks import gpu_table


def test_the_documented_table_is_that_of_the_result_files(root):
    table = gpu_table.table()
    assert table.count("\n") == 47, "head, rule and 46 rows"
    head, *rest = table.splitlines()
    page = (root / "docs" / "native.md").read_text(encoding="utf-8")
    shown = page[page.index(head) :].partition("\n\n")[0].splitlines()[1:]
    assert len(shown) > 5 and set(shown) <= set(rest), "some of its rows"
