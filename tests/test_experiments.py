"""What only serves the developers stays outside the package."""

import ast


def test_the_package_imports_nothing_of_the_experiments(root):
    """Nor does the logger plugin beside it: `experiments` is in no wheel."""
    sources = [*(root / "workflow").rglob("*.py")]
    assert len(sources) > 100
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not any(name.partition(".")[0] == "experiments" for name in names), path
