"""The pages of docs/reference are what the schemas and the code say now."""

import runpy

import pytest

from kernel_dvfs.cli.main import every_command


@pytest.fixture(scope="module")
def generated(root):
    return runpy.run_path(str(root / "docs/generate_reference.py"))["pages"]()


def test_the_committed_pages_are_those_that_the_code_gives(root, generated):
    folder = root / "docs/reference"
    assert {path.name for path in folder.iterdir()} == set(generated)
    stale = [name for name, text in generated.items() if (folder / name).read_text("utf-8") != text]
    assert not stale, f"run make reference: {stale}"


def test_every_key_every_command_and_every_table_has_its_line(root, generated, config):
    from kernel_dvfs.outputs import outputs
    from kernel_dvfs.report import figures, tables

    assert all(f"| `{key}` |" in generated["configuration.md"] for key in config())
    text = generated["commands.md"]
    for name, command in every_command().items():
        assert (f"\n## {name}\n" if command.listed else f"\n| `{name}` |") in text, name
    assert all(f"| `{name}` |" in generated["results.md"] for name in (*outputs(tables), *outputs(figures)))


def test_no_page_speaks_of_a_key_that_has_no_meaning(generated):
    rows = [line.split(" | ") for line in generated["configuration.md"].splitlines() if line.startswith("| `")]
    explained = [row[0] for row in rows if row[2].strip()]
    assert len(explained) == len(rows)
