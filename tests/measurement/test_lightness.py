"""A measurement job runs without site-packages and imports none of the heavy libraries of the workflow; nor does the
measuring process of a real GPU, before it opens one."""

import subprocess
import sys

import pytest

HEAVY = {"numpy", "pandas", "pyarrow", "snakemake"}


@pytest.fixture(scope="module")
def setup_path(setup_of, tmp_path_factory):
    from kernel_dvfs.measurement.setup import store

    setup = setup_of()
    return store(str(tmp_path_factory.mktemp("s")), setup.gpu, setup.workload, setup.targets, setup.measurement)


@pytest.mark.parametrize("target", ["kernel/forward_gelu", "pass/forward"])
def test_a_job_imports_no_heavy_library(setup_path, tmp_path, root, target):
    code = "import sys, kernel_dvfs.cli.main as m; m.main(sys.argv[1:]); print(' '.join(sys.modules))"
    arguments = ["measure", "--gpu", setup_path, "--target", target, "--clocks", "1470,auto", "-o", str(tmp_path / "r")]
    # with site-packages, so that a heavy library would be found
    for options in ([], ["-S"]):
        (tmp_path / "r").unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, *options, "-c", code, *arguments],
            env={"PYTHONPATH": str(root / "workflow")},
            capture_output=True,
            text=True,
            check=True,
        )
        assert (tmp_path / "r").exists()
        assert not {name.partition(".")[0] for name in done.stdout.split()} & HEAVY


def test_the_measuring_process_of_a_real_gpu_imports_little(root):
    code = "import sys, kernel_dvfs.measurement.real.server; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(root / "workflow")},
        capture_output=True,
        text=True,
        check=True,
    )
    modules = {name.partition(".")[0] for name in done.stdout.split()}
    assert not modules & (HEAVY | {"dataclasses", "yaml"}), "in each measuring process"


def test_a_job_that_asks_the_measuring_process_imports_nothing_that_sets_clocks(root):
    code = "import sys, kernel_dvfs.measurement.real.client; print(*sys.modules)"
    environment = {"PYTHONPATH": str(root / "workflow")}
    found = subprocess.check_output([sys.executable, "-S", "-c", code], env=environment, text=True).split()
    assert "kernel_dvfs_clocks.nvml.lease" in found, "where the process listens"
    assert not {"subprocess", "importlib.metadata", "kernel_dvfs_clocks.setters.setter"} & set(found)
