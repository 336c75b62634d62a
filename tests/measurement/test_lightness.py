"""A measurement job imports nothing heavy and starts in a few milliseconds."""

import subprocess
import sys

import pytest

HEAVY = {
    "numpy", "pandas", "pyarrow", "ortools", "snakemake", "pydantic", "yaml", "jsonschema", "scipy",
    "argparse", "json", "re", "typing", "dataclasses", "collections", "random", "hashlib", "pathlib", "subprocess",
}  # fmt: skip


@pytest.fixture(scope="module")
def setup_path(setup_of, tmp_path_factory):
    from kernel_dvfs.measurement.setup import store

    setup = setup_of()
    return store(str(tmp_path_factory.mktemp("s")), setup.gpu, setup.workload, setup.targets, setup.measurement)


@pytest.mark.parametrize("target", ["kernel/forward_gelu", "pass/forward"])
def test_a_job_runs_without_site_packages_and_without_heavy_modules(setup_path, tmp_path, root, target):
    code = "import sys, kernel_dvfs.cli.main as m; m.main(sys.argv[1:]); print(' '.join(sys.modules))"
    arguments = ["measure", "--gpu", setup_path, "--target", target, "--clocks", "1470,auto", "-o", str(tmp_path / "r")]
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *arguments],
        env={"PYTHONPATH": str(root / "workflow")},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert (tmp_path / "r").exists()
    assert not loaded & HEAVY
