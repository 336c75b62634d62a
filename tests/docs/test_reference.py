"""The pages of docs/reference are what the schemas and the code say now, and show every word of it."""

import html.parser

import pytest
import yaml

from kernel_dvfs.cli.main import every_command


@pytest.fixture(scope="module")
def generator(script):
    return script("docs/generate_reference.py")


@pytest.fixture(scope="module")
def generated(generator):
    return generator.pages()


def test_the_committed_pages_are_those_that_the_code_gives(root, generated):
    folder = root / "docs/reference"
    assert {path.name for path in folder.iterdir()} == set(generated)
    stale = [name for name, text in generated.items() if (folder / name).read_text("utf-8") != text]
    assert not stale, f"run make reference: {stale}"


def test_every_key_every_command_and_every_table_has_its_line(root, generated, config):
    from kernel_dvfs.registry import outputs

    told = generated["configuration.md"]
    assert all(f"`{key}: " in told or f"| `{key}` |" in told for key in config())
    inner = [key for group in ("pipeline", "serving") for key in config()[group]]
    assert inner and all(f"`.{key}: " in told for key in inner)
    text = generated["commands.md"]
    for name in every_command():
        assert (f"\n## {name}\n" in text) != (f"`{name}`" in text.partition("## Called by rules")[2]), name
    assert all(f"| `{name}` |" in generated["results.md"] for name in (name for _, name in outputs("gpu")))


def test_no_page_speaks_of_a_key_that_has_no_meaning(generated):
    rows = [line.split(" | ") for line in generated["configuration.md"].splitlines() if line.startswith("| `")]
    assert len(rows) >= 60
    for *keys, meaning in rows:
        assert meaning.strip(" |"), keys


def test_keys_that_one_comment_explains_share_its_row(generator):
    text = "# --- One ---\n\n# Both.\n# More.\na: 1\nb: 2\n# Third.\nc: 3\n\nd: 4\n"
    assert generator._sections(text) == [("One", [(["a", "b"], "Both. More."), (["c"], "Third."), (["d"], "")])]


class Rows(html.parser.HTMLParser):
    """The text of every row of every table, cell by cell, and of every item of a list."""

    def __init__(self):
        super().__init__()
        self.rows, self._in_cell = [], False

    def handle_starttag(self, tag, attributes):
        if tag in ("tr", "li"):
            self.rows.append([""] if tag == "li" else [])
            self._in_cell = tag == "li"
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag):
        self._in_cell = self._in_cell and tag not in ("td", "th", "li")

    def handle_data(self, data):
        if self._in_cell:
            self.rows[-1][-1] += data


def rendered(root, text: str) -> list:
    """[[text of a cell]] of a page, as the site's own Markdown shows it."""
    markdown = pytest.importorskip("markdown", reason="Markdown is not installed: make docs brings it")
    pytest.importorskip("pymdownx", reason="the site's Markdown extensions are not installed: make docs brings them")
    names, options = [], {}
    for each in yaml.safe_load((root / "mkdocs.yml").read_text("utf-8"))["markdown_extensions"]:
        name, settings = next(iter(each.items())) if isinstance(each, dict) else (each, {})
        names.append(name)
        options[name] = settings
    parser = Rows()
    parser.feed(markdown.markdown(text, extensions=names, extension_configs=options))
    return parser.rows


def shown(cell) -> str:
    return " ".join(str(cell).replace("`", "").split())


def test_the_site_shows_every_word_of_every_row(root, generator, monkeypatch):
    """Nothing between braces, angle brackets, bars or asterisks is taken for markup and lost."""
    asked, table, items = [], generator._table, generator._list
    monkeypatch.setattr(generator, "_table", lambda head, rows: asked.extend((head, *rows)) or table(head, rows))
    monkeypatch.setattr(
        generator,
        "_list",
        lambda rows: asked.extend([": ".join(filter(None, row))] for row in rows) or items(rows),
    )
    pages = generator.pages().values()
    found = [row for text in pages for row in rendered(root, text)]
    assert len(found) > 300 and [list(map(shown, row)) for row in found] == [list(map(shown, row)) for row in asked]


@pytest.mark.parametrize(
    "text",
    [
        "results/<gpu>/<UUID>",
        "ends with {step: 210}",
        "{kind: table, path: FILE[, name]} and more",
        "a | b, `a | b`",
        "*all* of a * b, core_mhz and _this_",
        "a & b &lt; c, \\n, [x](y) [x][y]",
        "`{a}`{b}",
    ],
)
def test_a_cell_shows_what_it_is_given(root, generator, text):
    assert rendered(root, generator._table(("key",), [(text,)]))[1:] == [[shown(text)]]
