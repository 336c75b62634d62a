"""The page of a pipeline study says what its records say, in few words first."""

import re
import shutil

import pytest
from chromium import check_usable

from kernel_dvfs.cli.main import main
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.report import page
from kernel_dvfs_pipeline.study import BOUND, ONE_CLOCK, PipelineStudy

MICROBATCHES = 4  # the first number of the study, which the figures are of


def words(html: str) -> list[str]:
    body = re.sub(r"<(script|style|svg).*?</\1>", " ", html, flags=re.S)
    return re.sub(r"<[^>]+>", " ", body[body.index("<header>") : body.index("</section>")]).split()


@pytest.mark.slow
def test_the_first_screen_has_the_saving_of_the_plan_that_can_be_played_and_its_proof(solved_study):
    html, missing = page.make(solved_study)
    study = PipelineStudy(solved_study)
    own, bound = (study.methods(MICROBATCHES)[name] for name in (ONE_CLOCK, BOUND))
    heading = re.search(r"<h1>(.*?)</h1>", html)[1]
    assert f"{-own.energy_change_percent:.1f} % less energy" in heading
    assert not missing and len(words(html)) < 220
    assert "export mb4/plans/one-clock.json" in html, "a mailed page tells no folder of its maker"
    assert f"{max(0, 100 * (own.energy_j / bound.energy_j - 1)):.2g} % less." in html
    assert "nothing ran on a cluster" in html and 'class="tag">simulated' in html
    slower = study.methods(MICROBATCHES, 1.2)[ONE_CLOCK].energy_change_percent
    assert f'data-value="{slower}"' in html, "the straggler's row has its own plan"


@pytest.mark.slow
def test_the_frontier_is_drawn_on_the_first_screen_and_anybody_can_use_the_page(solved_study, tmp_path):
    folder = shutil.copytree(solved_study, tmp_path / "study")
    assert main(["output", str(folder), "frontier", "timeline", "no_straggler"]) == 0
    assert main(["report", str(folder)]) == 0
    first = (folder / "report.html").read_text("utf-8").partition('<details class="part">')[0]
    assert 'id="figure-frontier"' in first and "data:image/png;base64," in first
    check_usable(folder / "report.html", tmp_path)


def test_the_report_command_writes_it(solved_study, tmp_path):
    assert main(["report", str(solved_study), "-o", str(tmp_path / "p.html")]) == 0
    assert "Hand the plan to a trainer" in (tmp_path / "p.html").read_text("utf-8")


def test_a_study_that_was_not_solved_is_refused(kernel_study):
    with pytest.raises(InputError, match=r"methods\.csv"):
        page.make(kernel_study)
