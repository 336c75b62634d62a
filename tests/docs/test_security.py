"""Each row of the threat model names a test that is there."""

import ast
import re


def test_every_row_of_the_threat_model_names_a_test_that_is_there(root):
    rows = [line for line in (root / "SECURITY.md").read_text("utf-8").splitlines() if line.startswith("| ")][1:]
    rows = [line for line in rows if not line.startswith("|---")]
    assert len(rows) > 15
    tests: dict = {}  # {path: names of its tests}
    for row in rows:
        named = re.findall(r"`((?:experiments/)?tests/[\w/]+\.py)::(test_\w+)`", row.split("|")[-2])
        assert named, row
        for path, test in named:
            if path not in tests:
                body = ast.parse((root / path).read_text("utf-8")).body
                tests[path] = {node.name for node in body if isinstance(node, ast.FunctionDef)}
            assert test in tests[path], f"{path} has no {test}"
