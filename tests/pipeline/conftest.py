"""A small pipeline study on disk, from the kernels of a simulated GPU, and one from a CSV of stages."""

import shutil

import pytest
from made_up import profile

from kernel_dvfs.profile import aggregate
from kernel_dvfs_clocks.clocks import sweep_pairs
from kernel_dvfs_pipeline.solver import Solver
from kernel_dvfs_pipeline.stage_profile import write_stage_profile
from kernel_dvfs_pipeline.steps import PARTS, make_study
from kernel_dvfs_pipeline.study import PipelineStudy


@pytest.fixture(scope="session")
def pipeline_core(native_results):
    """A results folder with the compiled core in it."""
    return native_results("pipeline")


@pytest.fixture(scope="session")
def kernels_path(setup_of, once):
    """A kernel profile of GPT-3 125M on two simulated A100."""

    def make(folder):
        setup = setup_of(gpu="a100_sxm", model="gpt3-125m", batch=8, tensor_parallel=2)
        grid = {"core_mhz": {"step": 200}, "mem_mhz": "all", "auto": False}
        pairs, _ = sweep_pairs(setup.gpu["spec"]["clocks"], grid)
        aggregate.from_bench(setup, pairs, 1, str(folder / "profile.parquet"), ("kernel",))

    return once("pipeline-kernels", make) / "profile.parquet"


@pytest.fixture(scope="session")
def kernel_study(kernels_path, study_options, tmp_path_factory):
    """The folder of a study whose kernels are known. Not to be changed."""
    folder = tmp_path_factory.mktemp("kernel-study")
    make_study(kernels_path, folder, study_options | {"name": "toy", "unit_time_s": 0.0001})
    return folder


@pytest.fixture(scope="session")
def solved_study(kernels_path, study_options, once, tmp_path_factory):
    """The folder of the same study, solved; tables and figures may be written into it."""

    def make(folder):
        make_study(kernels_path, folder, study_options | {"name": "toy", "unit_time_s": 0.0001})
        solver = Solver(PipelineStudy(folder))
        for microbatches in study_options["microbatches"]:
            for solve in PARTS.values():
                solve(solver, microbatches)

    return shutil.copytree(once("solved-pipeline", make), tmp_path_factory.mktemp("solved-study") / "study")


@pytest.fixture(scope="session")
def stage_csv(tmp_path_factory):
    """A CSV of four stages."""
    path = tmp_path_factory.mktemp("csv") / "stages.csv"
    write_stage_profile(path, profile(4))
    return path


@pytest.fixture(scope="session")
def stage_study(stage_csv, study_options, tmp_path_factory):
    """The folder of a study of that CSV. Not to be changed."""
    folder = tmp_path_factory.mktemp("stage-study")
    make_study(stage_csv, folder, study_options | {"name": "made-up"})
    return folder
