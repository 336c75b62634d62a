"""The pipeline part of a configuration: what it plans, and one line for what it cannot be."""

import subprocess
import sys

import pytest

from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.plan import config as configuration
from kernel_dvfs.registry import outputs
from kernel_dvfs.table_file import write_rows
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.study_plan import line_of_pipeline, plan_pipeline, waiting_w


@pytest.fixture
def planned(config, root, tmp_path):
    """The plan of the shipped configuration with some keys of `pipeline` changed."""

    def plan(**changed):
        values = config()
        values["pipeline"] = values["pipeline"] | changed
        configuration.check(values, root / "workflow/schemas/config.schema.yaml")
        return plan_pipeline(values, str(tmp_path))

    return plan


def test_the_shipped_configuration_simulates_its_stages(planned, tmp_path):
    plan = planned()
    assert plan.folder == f"{tmp_path}/pipeline/sim-a100-sxm/gpt3-175b-b1-tp8/pp8"
    assert plan.source.endswith("kernels.parquet") and plan.knows_kernels
    assert plan.setup.path.endswith(".json") and "sim-a100-sxm" in plan.setup.text
    assert not list(tmp_path.iterdir()), "planning writes nothing"
    # near what the artifact measured on an A100
    assert plan.options["blocking_w"] == waiting_w(resolve("a100_sxm")) == pytest.approx(83.64, rel=0.1)


def test_a_schedule_has_a_folder_of_its_own(planned):
    names = {planned(schedule="interleaved", chunks=2).folder, planned(early_recompute=True).folder, planned().folder}
    assert {name.rpartition("/")[2] for name in names} == {"pp8-interleaved2", "pp8-recompute", "pp8"}


def test_a_graph_has_a_folder_by_its_content(planned, tmp_path):
    folders = set()
    for content in ("{}", "[]"):
        (tmp_path / "mine.json").write_text(content)
        folders.add(planned(schedule=str(tmp_path / "mine.json")).folder.rpartition("/")[2])
    assert len(folders) == 2 and all(folder.startswith("pp8-mine-") for folder in folders)


def test_a_csv_is_taken_as_it_is_and_scales_set_it_apart(planned, tmp_path):
    (tmp_path / "mine.csv").write_text("")
    given = {"profile": str(tmp_path / "mine.csv"), "blocking_w": 80}
    one, other = planned(**given), planned(**given, scale_time=10)
    assert one.setup is None and not one.knows_kernels and one.options["blocking_w"] == 80
    assert "table-mine/pp8-" in one.folder and one.folder != other.folder and other.scale_time == 10


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"profile": "nowhere.csv"}, "profile = 'nowhere.csv': no such file"),
        ({"gpu": "a1000"}, "a1000"),
        ({"model": "gpt5"}, "gpt5"),
        ({"tensor_parallel": 7}, "tensor_parallel 7"),
        ({"scale_energy": 80}, "in full scale"),
        ({"stages": 0}, "pipeline.stages = 0"),
        ({"schedule": "nowhere.json"}, "no such graph"),
        ({"schedule": "mine.json", "transfer_s": 0.01}, "transfer_s: mine.json says it already"),
        ({"transfer_w": -1}, "pipeline.transfer_w = -1"),
        ({"schedule": "zigzag"}, "1f1b, gpipe, interleaved, zb-h1 or dualpipe"),
        ({"microbatches": []}, "pipeline.microbatches"),
        ({"straggler": [0.9]}, "a number from 1"),
        ({"blocking_w": -1}, "pipeline.blocking_w"),
        ({"unit_time_s": 0}, "pipeline.unit_time_s"),
        ({"stagess": 8}, "did you mean 'stages'"),
    ],
)
def test_what_cannot_be_is_one_line(planned, changed, named):
    with pytest.raises(InputError) as error:
        planned(**changed)
    assert named in str(error.value) and str(error.value).startswith("config: ")


def test_a_given_profile_must_come_with_its_blocking_power(planned, tmp_path):
    (tmp_path / "mine.csv").write_text("")
    with pytest.raises(InputError, match="blocking_w = null: a given profile does not say it"):
        planned(profile=str(tmp_path / "mine.csv"))


def test_a_kernel_profile_is_not_scaled(planned, tmp_path):
    (tmp_path / "profile.parquet").write_text("")
    given = {"profile": str(tmp_path / "profile.parquet"), "blocking_w": 80}
    assert planned(**given).knows_kernels
    with pytest.raises(InputError, match="in full scale; allowed: 1"):
        planned(**given, scale_energy=8)


def test_every_output_reads_solved_files_and_levels_need_kernels(planned, tmp_path):
    (tmp_path / "mine.csv").write_text("")
    simulated, given = planned(), planned(profile=str(tmp_path / "mine.csv"), blocking_w=80)
    for (_, name), output in outputs("pipeline").items():
        read = output.made_from(simulated)
        assert read and all(path.startswith(f"{simulated.folder}/mb") for path in read), name
        assert output.made_by(simulated) and output.made_by(given) == (name != "levels")


def test_declarations_are_read_without_heavy_libraries(root):
    code = (
        "import sys\n"
        "from kernel_dvfs.registry import outputs\n"
        "assert len(outputs('pipeline').of('table')) == 7 and len(outputs('pipeline').of('figure')) == 6\n"
        "print(*sorted({'numpy', 'pandas', 'plotnine', 'matplotlib', 'scipy', 'ortools'} & set(sys.modules)))"
    )
    environment = {"PYTHONPATH": str(root / "workflow")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == ""


def test_a_run_ends_with_what_the_plans_save_that_can_be_played(tmp_path):
    assert line_of_pipeline(str(tmp_path)) == f"pipeline: tables and figures are in {tmp_path}"
    (tmp_path / "tables").mkdir()
    names = ("source", "workload", "microbatches", "method", "energy_change_percent", "time_change_percent", "gpu")
    rows = [
        ("ours", "m-pp8", 12, "split", -11.21, 0.04, "simulated A"),
        ("ours", "m-pp8", 12, "one clock", -10.66, -0.04, "simulated A"),
        ("ours", "m-pp8", 24, "one clock", -9.34, 0.13, "simulated A"),
        ("paper", "m-pp8", 12, "one clock", -30.0, 0.0, "B"),
    ]
    write_rows(tmp_path / "tables/no_straggler.json", [dict(zip(names, row)) for row in rows])
    assert line_of_pipeline(str(tmp_path)) == (
        "pipeline m-pp8: -10.7 % energy at 0.0 % time with 12 microbatches; -9.3 % energy at +0.1 % time with 24 "
        "microbatches (planned, simulated A), against all clocks at their highest. "
        f"Open {tmp_path}/report.html"
    )
