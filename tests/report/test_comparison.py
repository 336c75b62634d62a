"""GPUs and workloads side by side: one row for each folder that was chosen on, none for others."""

import json
import warnings

import pandas as pd
import pytest
from whole_schedule import whole_schedule

from kernel_dvfs.layout import STRICT
from kernel_dvfs.profile.store import COLUMNS, write_profile
from kernel_dvfs.report import comparison
from kernel_dvfs.report.comparison import gpus
from kernel_dvfs.table_file import write_rows
from kernel_dvfs_clocks.errors import InputError


def folder(root, gpu, workload, kind="simulated", schedules=(STRICT,), validated=False, reference=None):
    """A results folder with two kernels at two pairs."""
    path = root / f"{kind}-{gpu}".lower().replace(" ", "-") / workload
    path.mkdir(parents=True)
    rows = [
        dict.fromkeys(COLUMNS)
        | {"study": "kernel", "target": target, "launches_per_iteration": 1, "n": 1, "verdict": "ok"}
        | {"core_mhz": core, "is_baseline": core is None, "time_s": 1.0, "energy_j": 100.0}
        for target in ("a", "b")
        for core in (None, 1470.0)
    ]
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    about = {"kind": kind, "name": gpu, "slug": gpu.lower()}
    measured = {"name": workload, "reference": reference}
    write_profile(path / "profile.parquet", columns, about, measured, ["core_mhz", "mem_mhz"])
    (path / "schedules").mkdir()
    for number, name in enumerate(schedules):
        content = whole_schedule(baseline_time=2.0, baseline_energy=200.0)
        content |= {"time_change_percent": -0.0001, "energy_change_percent": -5.0 - number}
        (path / f"schedules/{name}.json").write_text(json.dumps(content))
    if validated:
        (path / "tables").mkdir()
        fresh = {"schedule": STRICT}
        for quantity in ("time", "energy"):
            for bound, value in (("change", 1.0), ("low", 0.5), ("high", 1.5)):
                fresh[f"fresh_{quantity}_{bound}_percent"] = value
        write_rows(path / "tables/headline.json", [fresh])
    return path


@pytest.fixture
def two(tmp_path):
    names = (STRICT, "pass-global-waste-slack0", "kernel-global-edp")
    folder(tmp_path, "RTX 3080 Ti", "gpt3-xl-b40-tp1", schedules=names, validated=True)
    folder(tmp_path, "A100", "as-measured", kind="table", reference="1410,1215")
    folder(tmp_path, "H200", "gpt3-xl-b40-tp1", schedules=())  # measured, not chosen
    (tmp_path / "native").mkdir()
    return tmp_path


def test_each_folder_that_was_chosen_on_is_a_row(two):
    frame = gpus(two)
    assert list(frame.gpu) == ["simulated RTX 3080 Ti", "A100"]
    assert list(frame.kind) == ["simulated", "table"]
    assert list(frame.workload) == ["gpt3-xl-b40-tp1", "as-measured"]
    assert list(frame.baseline) == ["auto", "the reference 1410,1215"]
    assert list(frame.kernels) == [2, 2]
    assert list(frame.pairs) == [2, 2]


def test_figures_come_from_the_schedules_and_the_validation(two):
    row = gpus(two).iloc[0]
    assert (row.baseline_time_s, row.baseline_energy_j) == (2.0, 200.0)
    assert row.kernel_claimed_energy_change_percent == -5.0
    assert row.pass_energy_change_percent == -6.0
    assert row.edp_energy_change_percent == -7.0
    assert (row.kernel_fresh_energy_low_percent, row.kernel_fresh_energy_high_percent) == (0.5, 1.5)


def test_what_was_not_made_is_left_empty(two):
    row = gpus(two).iloc[1]
    assert (
        row[["pass_energy_change_percent", "kernel_fresh_time_change_percent", "edp_time_change_percent"]].isna().all()
    )


def test_it_is_written_for_programs_and_for_people(two):
    comparison.write(two)
    frame = pd.read_csv(two / "comparison/gpus.csv")
    assert list(frame.columns) == list(gpus(two).columns)
    text = (two / "comparison/gpus.md").read_text()
    assert "simulated RTX 3080 Ti" in text and "time at the baseline, s" in text
    assert "-0.00" not in text
    assert "nan" not in text


def test_a_figure_of_claims_alone_is_drawn_without_a_warning(tmp_path):
    folder(tmp_path, "A100", "as-measured", kind="table", reference="1410,1215")
    rows = [{name: None if pd.isna(cell) else cell for name, cell in gpus(tmp_path).iloc[0].items()}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        comparison.strict(rows).save(tmp_path / "strict.png", verbose=False)


def test_nothing_to_compare_is_one_line(tmp_path):
    with pytest.raises(InputError, match="snakemake choose"):
        gpus(tmp_path)
