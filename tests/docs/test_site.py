"""docs/ builds as a site, strictly, and asks the reader's browser to fetch nothing."""

import re
import subprocess
import sys

import pytest
import yaml


@pytest.fixture(scope="module")
def site(root, tmp_path_factory):
    pytest.importorskip("mkdocs", reason="MkDocs is not installed: make docs brings it")
    pytest.importorskip("material", reason="mkdocs-material is not installed: make docs brings it")
    folder = tmp_path_factory.mktemp("site")
    words = ["build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run([sys.executable, "-m", "mkdocs", *words], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        text = page.read_text("utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)"', text)
        loaded += re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="(https?:[^"]+)"', text)
        assert not loaded, page


def test_every_page_is_in_the_menu_and_every_link_out_of_docs_leads_to_a_file(root):
    """What a strict build would say, also where MkDocs is not installed."""
    docs = root / "docs"
    menu = re.findall(r": ([\w/-]+\.md)$", (root / "mkdocs.yml").read_text("utf-8"), re.M)
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    assert pages == set(menu)
    for page in sorted(pages):
        text = re.sub(r"^```.*?^```", "", (docs / page).read_text("utf-8"), flags=re.S | re.M)
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            assert link.startswith("http") or ((docs / page).parent / link).exists(), f"{page}: {link}"


def test_the_site_is_set_to_fetch_no_fonts(root):
    text = (root / "mkdocs.yml").read_text("utf-8")
    assert yaml.safe_load(text)["theme"]["font"] is False
