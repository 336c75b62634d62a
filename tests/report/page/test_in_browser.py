"""The pages in a real browser: nothing is asked of the network, no script fails, tables sort, a phone can read them."""

import csv
import os
from itertools import pairwise

import pytest
from chromium import Chromium, axe, find
from made_up_study import made_up

from kernel_dvfs.cli.main import main
from kernel_dvfs.report import comparison
from kernel_dvfs.table_file import read_rows

pytestmark = pytest.mark.slow

WIDTHS = {"desktop": 1280, "phone": 390}
KERNELS = "table[data-table=chosen_clocks]"
ORDER = f"[...document.querySelectorAll('{KERNELS} tbody tr')].map(row => row.cells[0].dataset.value)"


@pytest.fixture(scope="module")
def browser():
    executable = find()
    if not executable:
        pytest.skip("no Chromium on this machine (chromium or google-chrome on PATH)")
    with Chromium(executable) as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Addresses of the page of a study and of a comparison."""
    results = tmp_path_factory.mktemp("results")
    study = made_up(results / "sim-toy-1/toy-b40-tp1")
    assert main(["report", str(study)]) == 0
    comparison.write(results)
    assert main(["report", str(results / "comparison")]) == 0
    assert main(["demo", "-o", str(results / "demo")]) == 0
    schedule = results / "demo/report.html"
    assert main(["demo", "--step", "-o", str(results / "step")]) == 0
    found = {"study": study / "report.html", "comparison": results / "comparison/report.html", "schedule": schedule}
    return found | {"step": results / "step/report.html"}


@pytest.fixture(scope="module")
def axe_script(tmp_path_factory):
    script = axe(tmp_path_factory.mktemp("axe"))
    if script is None:
        pytest.skip("no axe-core: neither npm's cache nor its registry has it")
    return script


def address(path) -> str:
    return f"file://{path}"


@pytest.mark.parametrize("name", ["study", "comparison", "schedule", "step"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_page_asks_for_nothing_fails_at_nothing_and_fits(browser, pages, name, width):
    page = browser.open(address(pages[name]), width)
    assert page.errors() == []
    assert [each for each in page.requests() if not each.startswith("data:")] == [address(pages[name])]
    assert page.ask("document.documentElement.scrollWidth") <= width
    assert page.ask("document.body.getBoundingClientRect().right") <= width


AXED = [("desktop", name) for name in ("study", "comparison", "schedule", "step")] + [("phone", "study")]
AXED += [pytest.param("phone", name, marks=pytest.mark.nightly) for name in ("comparison", "schedule", "step")]


@pytest.mark.parametrize(("kind", "name"), AXED)
def test_axe_finds_nothing_that_anybody_cannot_use(browser, pages, axe_script, kind, name):
    page = browser.open(address(pages[name]), WIDTHS[kind])
    page.ask("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert page.violations(axe_script) == []


def test_axe_would_tell(browser, axe_script, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text('<html><main><img src="data:,"><p style="color: #ccc">pale</p></main></html>')
    rules = {rule for rule, _ in browser.open(address(path), WIDTHS["desktop"]).violations(axe_script)}
    assert {"image-alt", "color-contrast", "html-has-lang"} <= rules


STOPS = "[...document.querySelectorAll('table[data-table=stops] tbody tr')]"
STOPS += ".map(r => [...r.cells].map(c => c.dataset.value))"
RINGS = "[...document.querySelectorAll('.now')].map(c => [c.dataset.places, c.getAttribute('cx')])"
CARDS = "[...document.querySelectorAll('.way')].map(w => [w.dataset.way, ...[...w.querySelectorAll('[data-cell]')]"
CARDS += ".map(c => [c.dataset.cell, c.textContent])])"


def slide(page, number):
    bar = "document.querySelector('.slider input')"
    page.ask(f"{bar}.value = {number}; {bar}.dispatchEvent(new Event('input'))")


@pytest.mark.parametrize("name", ["study", "schedule", "step"])
def test_the_slider_changes_clocks_joules_and_commands_together(browser, pages, name):
    page = browser.open(address(pages[name]), WIDTHS["desktop"])
    assert page.ask("getComputedStyle(document.querySelector('.slider')).display") != "none"
    limits = page.ask("document.getElementById('frontier').dataset.limits").split("|")
    columns = page.ask("[...document.querySelectorAll('table[data-table=stops] th')].map(each => each.dataset.column)")
    stops = [dict(zip(columns, row)) for row in page.ask(STOPS)]
    energies = set()
    for number, limit in enumerate(limits):
        slide(page, number)
        assert page.ask("document.querySelector('.slider output').value") == limit
        assert page.ask("document.querySelector('.slider input').getAttribute('aria-valuetext')") == limit
        for way, *cells in page.ask(CARDS):
            (row,) = (each for each in stops if (each["way"], each["limit"]) == (way, limit))
            assert dict(cells) == {cell: row[cell] for cell, _ in cells}
            energies.add(row["energy"])
        for ring in page.ask(
            "[...document.querySelectorAll('.now')].map(c => [c.dataset.places, c.getAttribute('cx')])"
        ):
            assert ring[0].split("|")[number].split(",")[0] == ring[1]
    assert len(energies) > 2 and page.errors() == []


def test_a_limit_that_a_way_cannot_keep_is_said(browser, pages):
    page = browser.open(address(pages["study"]), WIDTHS["desktop"])
    page.ask("document.querySelector('.way.one').dataset.way = 'gone'; 0")
    page.ask("document.querySelector('.now.one').dataset.places = '|'.repeat(10); 0")
    page.ask(
        "(bar => { bar.value = 3; bar.dispatchEvent(new Event('input')); })(document.querySelector('.slider input'))"
    )
    card = dict(next(card for card in page.ask(CARDS) if card[0] == "gone")[1:])
    assert card["note"] == "none here" and card["energy"] == "" and page.errors() == []
    assert page.ask("document.querySelector('.way.one pre').hidden")
    assert page.ask("document.querySelector('.now.one').getAttribute('visibility')") == "hidden"


def test_wide_tables_scroll_by_themselves_on_a_phone(browser, pages):
    page = browser.open(address(pages["study"]), WIDTHS["phone"])
    wide = page.ask(f"(box => box.scrollWidth - box.clientWidth)(document.querySelector('{KERNELS}').parentElement)")
    assert wide > 50
    cut = page.ask(
        "[...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll, pre, details')"
        " && each.getBoundingClientRect().right > innerWidth + 1).map(each => each.outerHTML.slice(0, 80))"
    )
    assert cut == []


def test_a_click_on_a_heading_sorts_numbers_as_numbers_and_again_turns_them(browser, pages):
    page = browser.open(address(pages["study"]), WIDTHS["desktop"])

    def click(column):
        page.ask(f"document.querySelector('{KERNELS} th[data-column={column}] button').click()")
        return page.ask(ORDER)

    assert page.ask(ORDER) == ["1", "2", "10"]
    assert click("energy_change_percent") == ["1", "10", "2"]
    assert click("energy_change_percent") == ["2", "10", "1"]
    assert click("row") == ["1", "2", "10"], "as numbers: 2 before 10"
    assert click("core_mhz") == ["1", "10", "2"], "auto after every number"
    assert click("reached_core_mhz") == ["1", "10", "2"], "what is missing comes last"
    assert click("reached_core_mhz") == ["1", "10", "2"], "also downwards"
    sorted_by = f"[...document.querySelectorAll('{KERNELS} th[aria-sort]')].map(each => each.dataset.column)"
    assert page.ask(sorted_by) == ["reached_core_mhz"]


def test_without_scripts_everything_is_there_as_it_stands(browser, pages):
    page = browser.open(address(pages["study"]), WIDTHS["desktop"], scripts=False)
    assert page.ask("document.querySelectorAll('th button').length") == 0
    assert page.ask("getComputedStyle(document.querySelector('.slider')).display") == "none"
    assert page.ask(ORDER) == ["1", "2", "10"]


def test_names_with_markup_in_them_are_text(browser, pages):
    page = browser.open(address(pages["study"]), WIDTHS["desktop"])
    assert page.ask(f"document.querySelector('{KERNELS} tbody td:nth-child(3)').textContent") == "GEMM <b>&'\""
    assert page.ask("document.querySelectorAll('b b, td b').length") == 0


def test_the_browser_would_tell(browser, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text('<div style="width: 500px">x</div><img src="picture.png"><script>undefinedName()</script>')
    page = browser.open(address(path), WIDTHS["phone"])
    assert page.errors()
    assert address(tmp_path / "picture.png") in page.requests()
    assert page.ask("document.documentElement.scrollWidth") > WIDTHS["phone"]


def test_a_picture_can_be_taken(browser, pages, tmp_path):
    page = browser.open(address(pages["study"]), WIDTHS["phone"])
    page.screenshot(tmp_path / "phone.png")
    assert os.path.getsize(tmp_path / "phone.png") > 5000


# --- the fleet's day, tables as CSV, dark and printed -----------------------------------------------------------------

FLEET = "document.getElementById('fleet')"


def test_a_fleet_is_counted_by_the_reader_s_own_numbers(browser, pages, tmp_path):
    folder = made_up(tmp_path / "sim-toy-1/toy-b40-tp1")
    assert main(["report", str(folder), "--usd-per-kwh", "0.1", "--co2-g-per-kwh", "200"]) == 0
    page = browser.open(address(folder / "report.html"), WIDTHS["desktop"])
    watts, percent = (float(page.ask(f"{FLEET}.dataset.{name}")) for name in ("powerW", "changePercent"))
    assert watts == pytest.approx(2153 / 6.371, rel=1e-3) and percent == pytest.approx(-7.23, abs=0.005)

    def told(name):
        text = page.ask(f"{FLEET}.elements.{name}.value")
        return float(text.replace(",", "").replace("−", "-"))

    kwh = 1000 * watts * 24 / 1000 * percent / 100
    assert told("kwh") == pytest.approx(kwh, abs=0.6)
    assert told("money") == pytest.approx(0.1 * kwh, abs=0.6) and told("kg") == pytest.approx(0.2 * kwh, abs=0.6)
    page.ask(f"{FLEET}.elements.gpus.value = 8; {FLEET}.dispatchEvent(new Event('input'))")
    assert told("kwh") == pytest.approx(8 * kwh / 1000, abs=0.06)
    # without scripts the shipped numbers stand there
    still = browser.open(address(folder / "report.html"), WIDTHS["desktop"], scripts=False)
    assert float(still.ask(f"{FLEET}.elements.kwh.value")) == pytest.approx(kwh, abs=0.6)
    # without a price and a grid neither is claimed
    bare = browser.open(address(pages["study"]), WIDTHS["desktop"])
    assert bare.ask(f"!{FLEET}.elements.money && !{FLEET}.elements.kg && !!{FLEET}.elements.kwh")


def test_a_table_becomes_a_csv_of_its_rows(browser, pages):
    page = browser.open(address(pages["study"]), WIDTHS["desktop"])
    made = page.ask(f"csvOf(document.querySelector('{KERNELS}'))").splitlines()
    rows = read_rows(pages["study"].parent / "tables/chosen_clocks.json")
    shown = list(csv.DictReader(made))
    assert [row["id"] for row in shown] == [row["id"] for row in rows]
    assert [float(row["energy_change_percent"]) for row in shown] == [row["energy_change_percent"] for row in rows]
    assert shown[0]["name"] == rows[0]["name"], "quotes and commas in names come back"
    assert page.ask("document.querySelectorAll('.tools button[aria-label]').length") >= page.ask(
        "document.querySelectorAll('.scroll').length"
    )


def test_clocks_are_seen_on_a_phone_without_scrolling(browser, pages):
    page = browser.open(address(pages["study"]), WIDTHS["phone"])
    brief = "document.querySelector('table[data-table=kernels_by_saving]')"
    right = page.ask(f"{brief}.querySelector('th[data-column=mem_mhz]').getBoundingClientRect().right")
    assert right <= WIDTHS["phone"]
    # the first column stays where a table is scrolled
    page.ask(f"{brief}.parentElement.scrollLeft = 200")
    assert page.ask(f"{brief}.tBodies[0].rows[0].cells[0].getBoundingClientRect().left") >= 0


def test_headings_go_down_one_step_at_a_time(browser, pages):
    for path in pages.values():
        page = browser.open(address(path), WIDTHS["desktop"])
        levels = page.ask("[...document.querySelectorAll('h1,h2,h3,h4')].map(each => Number(each.tagName[1]))")
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        assert page.ask("document.querySelectorAll('main').length") == 1
