"""docs/ builds as a site, strictly, and asks the reader's browser to fetch nothing."""

import json
import re
import subprocess
import sys
import urllib.request

import pytest
import yaml

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(root, tmp_path_factory):
    pytest.importorskip("mkdocs", reason="MkDocs is not installed: make docs brings it")
    pytest.importorskip("material", reason="mkdocs-material is not installed: make docs brings it")
    folder = tmp_path_factory.mktemp("site")
    words = ["build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run([sys.executable, "-m", "mkdocs", *words], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.nightly
def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        text = page.read_text("utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)"', text)
        loaded += re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="(https?:[^"]+)"', text)
        assert not loaded, page


@pytest.mark.nightly
def test_the_site_holds_the_pages_that_the_demos_make(site):
    study, step = ((site / f"examples/{name}.html").read_text("utf-8") for name in ("study", "step"))
    assert "simulated RTX 3080 Ti" in study and "Measured again 5 times" in study
    assert "25 of its 122 kernels" in step and "NVIDIA H200" in step
    assert 'href="examples/step.html"' in (site / "index.html").read_text("utf-8")


@pytest.mark.nightly
def test_the_search_finds_words_of_the_pages_on_the_server_that_the_docs_name(site):
    """What the search box reads, by the command of CONTRIBUTING.md; it says which port it took."""
    words = [sys.executable, "-u", "-m", "http.server", "-d", str(site), "0", "--bind", "127.0.0.1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            address = re.search(r"http://[\d.:]+", server.stdout.readline())[0]
            with urllib.request.urlopen(f"{address}/search/search_index.json", timeout=20) as answer:
                found = json.load(answer)["docs"]
        finally:
            server.terminate()
    told = {each["location"].partition("#")[0] for each in found}
    assert {path.name for path in site.glob("*.html")} - {"404.html"} <= told
    text = " ".join(each["text"] for each in found if each["location"].startswith("reference/configuration.html"))
    assert "kernel-dvfs devices lists them" in text


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
