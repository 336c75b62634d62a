"""Jobs of the workflow find what the user's Python finds, and this library first."""

import os

from kernel_dvfs_clocks import environment


def test_jobs_keep_the_users_python_path_behind_this_library(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/site/modules", str(tmp_path), ""]))
    monkeypatch.setenv(environment.SLURM, "")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for _ in range(2):  # a job that runs Snakemake itself prepares once more
        environment.prepare(str(tmp_path))
        assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), "/site/modules"]
