"""Imports follow the data's road, and no modules import each other in a circle. Imports inside functions count, and
those for annotations alone."""

import ast
from pathlib import Path

import pytest

from kernel_dvfs.extensions import extensions, packages

# a room imports from those before it. `native` makes what is measured; `search` asks `profile` and `choice` what to
# measure next, so it stands after them, though its records come before
ROAD = ("", "workload", "native", "gpu", "measurement", "profile", "choice", "search", "plan", "report", "jobs", "api")
COMMANDS = "cli"
# the package below the road, which imports nothing of the others; those beside it use both and not each other
CLOCKS = "kernel_dvfs_clocks"
BESIDE = tuple(packages())


@pytest.fixture(scope="module")
def statements(root) -> dict[Path, list]:
    """{module's path: its statements of import, wherever they stand}"""
    paths = [*(root / "workflow").rglob("*.py")]
    return {path: [*imports_in(ast.parse(path.read_text("utf-8")))] for path in paths}


@pytest.fixture(scope="module")
def imports(root, statements) -> dict[str, set[str]]:
    """{module: modules of these packages that it imports}"""
    folders = [root / "workflow" / name for name in ("kernel_dvfs", CLOCKS, *BESIDE)]
    paths = {_name(path, root / "workflow"): path for path in statements if any(own in path.parents for own in folders)}
    return {name: _imported(path, statements[path], paths) - {name} for name, path in paths.items()}


@pytest.mark.slow
def test_no_module_is_imported_by_what_it_imports(imports):
    circles = [sorted(group) for group in strongly_connected(imports) if len(group) > 1]
    assert not circles


def test_every_room_has_its_place(imports):
    assert {_room(name) for name in imports} <= {*ROAD, CLOCKS, *BESIDE, COMMANDS}
    assert len(BESIDE) >= 5


def test_rooms_import_along_the_road(imports):
    places = {room: place for place, room in enumerate(ROAD)}
    against = {
        (here, there): name
        for name, imported in imports.items()
        for each in imported
        if _room(each) != CLOCKS
        if (here := _room(name)) in places and places.get(there := _room(each), len(ROAD)) > places[here]
    }
    assert not against


def test_the_clocks_import_nothing_of_ours(imports):
    used = {_room(each) for name, imported in imports.items() if _room(name) == CLOCKS for each in imported}
    assert used == {CLOCKS}


@pytest.mark.parametrize("extension", BESIDE)
def test_nothing_imports_an_extension_but_itself(imports, extension):
    users = {_room(name) for name, imported in imports.items() if any(_room(each) == extension for each in imported)}
    known = extensions()
    needing = {
        f"kernel_dvfs_{name}" for name in known if extension in {f"kernel_dvfs_{own}" for own in known[name].needs}
    }
    assert users == {extension} | needing


def test_only_commands_import_commands(imports):
    users = {name for name, imported in imports.items() if any(_room(each) == COMMANDS for each in imported)}
    beside = {name for name in imports if _room(name) in BESIDE and ".commands" in name}
    assert len(beside) >= 5 and {_room(name) for name in users - beside} == {COMMANDS}


@pytest.mark.slow
def test_the_package_and_the_logger_plugin_import_nothing_of_the_experiments(statements):
    """Which are in no wheel."""
    assert len(statements) > 100
    for path, nodes in statements.items():
        for node in nodes:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.partition(".")[0] == "experiments" for name in names), path


@pytest.mark.parametrize(
    ("graph", "circles"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [{"a", "b", "c"}]),
        ({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}}, [{"a", "b"}, {"c", "d"}]),
    ],
)
def test_circles_are_found(graph, circles):
    found = [group for group in strongly_connected(graph) if len(group) > 1]
    assert sorted(map(sorted, found)) == sorted(map(sorted, circles))


def strongly_connected(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of nodes that reach each other: those that a node reaches, and that reach it."""
    reached = {node: _reached(graph, node) for node in graph}
    groups, left = [], set(graph)
    while left:
        node = min(left)
        groups.append({node} | {other for other in reached[node] if node in reached[other]})
        left -= groups[-1]
    return groups


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def _name(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(module: str) -> str:
    """`gpu` of kernel_dvfs_clocks.clocks; "" of a module at the top that every room may use."""
    parts = module.split(".")
    if parts[0] in (CLOCKS, *BESIDE):
        return parts[0]
    if len(parts) == 1:
        return "api"  # kernel_dvfs itself offers what kernel_dvfs.api does
    if parts[1] == "__main__":
        return COMMANDS
    return parts[1] if len(parts) > 2 or parts[1] in (*ROAD, COMMANDS) else ""


def imports_in(node: ast.AST):
    """Statements of import below a node; only statements hold others."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        below = getattr(node, field, ())
        for each in below if isinstance(below, list) else ():  # a lambda's body is none
            if isinstance(each, ast.Import | ast.ImportFrom):
                yield each
            else:
                yield from imports_in(each)


def _imported(path: Path, nodes: list, known: dict[str, Path]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        else:
            assert not node.level, f"{path}: a relative import; write it in full"
            module = node.module or ""
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                found |= {inner} if inner in known else {module} & known.keys()
    return found
