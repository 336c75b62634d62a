"""A table of measurements through the whole pipeline; a malformed one is refused in one line in front of the user."""

import json
import os
from pathlib import Path

import pytest
from reduced_study import clone, snakemake

pytestmark = pytest.mark.workflow

FOLDER = Path("results/table-mine/as-measured")
TABLE = """gpu,kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto
X,stream,,,1.00,300,1
X,stream,2000,9000,1.00,300,0
X,stream,1000,9000,1.02,200,0
X,compute,,,2.00,700,1
X,compute,2000,9000,2.00,690,0
X,compute,2000,5000,1.97,660,0
X,compute,1000,5000,3.90,500,0
"""


@pytest.fixture
def directory(tmp_path):
    directory = clone(tmp_path / "clone")
    (directory / "mine.csv").write_text(TABLE)
    return directory


def test_a_table_gives_the_proven_optimum_tables_and_figures(directory):
    snakemake(directory, "all", config=["gpu={kind: table, path: mine.csv}"])
    chosen = json.loads((directory / FOLDER / "schedules/kernel-global-waste-slack0.json").read_text())
    # the time that `compute` gains at the lower memory clock pays for `stream` at the lower core clock
    assert chosen["targets"] == {
        "stream": {"core_mhz": 1000, "mem_mhz": 9000},
        "compute": {"core_mhz": 2000, "mem_mhz": 5000},
    }
    assert chosen["energy_change_percent"] == pytest.approx(100 * (860 / 1000 - 1)) and chosen["status"] == "optimal"
    made = {path.stem for path in (directory / FOLDER / "figures").glob("*.png")}
    assert made == {"fig2_desirability", "fig5_kernels", "fig6_relaxed_waste"}
    # verdicts on the paper's claims are for its own workload, and nothing here needs a compiler
    assert not list((directory / FOLDER / "tables").glob("claims.*")) and not (directory / "results/native").exists()
    page = (directory / FOLDER / "report.html").read_text()
    assert "a table cannot be measured again" in page and "What is missing" not in page


def test_an_edited_schedule_is_refused_whatever_its_date_until_it_is_made_again(directory):
    config = ["gpu={kind: table, path: mine.csv}"]
    snakemake(directory, "choose", config=config)
    path = directory / FOLDER / "schedules/kernel-global-waste-slack0.json"
    about, text = path.stat(), path.read_text()
    path.write_text(text.replace('"energy_change_percent": -', '"energy_change_percent": -4'))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    said = snakemake(directory, "choose", check=False, config=config)
    assert said.returncode != 0
    (line,) = (line for line in said.stdout.splitlines() if line.startswith("error:"))
    assert f"{path.name}: was changed since it was written" in line and "delete it and run snakemake" in line
    path.unlink()
    snakemake(directory, "choose", config=config)
    assert path.read_text() == text


def test_a_malformed_table_is_named_with_line_and_column(directory):
    (directory / "mine.csv").write_text(TABLE.replace("1.97,660", "-1.97,660"))
    said = snakemake(directory, "choose", check=False, config=["gpu={kind: table, path: mine.csv}"])
    assert said.returncode != 0
    line = next(line for line in said.stdout.splitlines() if line.startswith("error:"))
    assert "mine.csv" in line and "line 7" in line and "time_ms" in line
    assert not (directory / FOLDER / "profile.parquet").exists()
