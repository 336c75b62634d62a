"""Which GPU a study is of where there is no driver: known by what was kept of it, never guessed."""

import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs_clocks import environment
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml import facts

# what a study is planned by
FACTS = {
    "name": "NVIDIA H200",
    "driver": "580",
    "vbios": "96",
    "pci_bus_id": "0000:01:00.0",
    "compute_capability": "9.0",
    "energy_scope": "module",
    "power_limit_mw": 700_000,
    "ecc": True,
    "sm_count": 132,
    "threads_per_sm": 2048,
    "clocks": {"core_mhz": {"listed": {"3201": [345, 1980]}}, "mem_mhz": [3201]},
}
ONE, TWO = (FACTS | {"uuid": f"GPU-{each}", "slug": f"nvidia-h200-{each}"} for each in ("1a2b3c4d", "5e6f7a8b"))


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty results folder, seen from the login node of a cluster."""
    monkeypatch.setenv(environment.SLURM, "--partition=gpu --gpus=1")
    return str(tmp_path)


def test_two_gpus_with_one_slug_are_refused_by_name(results):
    facts.keep(ONE, results)
    facts.keep(ONE | {"driver": "581"}, results)
    with pytest.raises(InputError, match=r"two GPUs with one slug: .*1a2b3c4d holds results of GPU-1a2b3c4d, this one"):
        facts.keep(ONE | {"uuid": "GPU-1a2b3c4d-another"}, results)
    assert facts.known_facts("", results)["driver"] == "581"


def test_on_a_cluster_the_one_known_gpu_is_meant_and_of_several_the_one_that_is_named(results):
    with pytest.raises(InputError, match=r"no GPU of the cluster is known; .* kernel-dvfs identify"):
        facts.known_facts("", results)
    facts.keep(ONE, results)
    assert facts.known_facts("", results) == ONE
    facts.keep(TWO, results)
    with pytest.raises(InputError, match="more than one GPU of the cluster is known; name one of nvml:GPU-1a2b3c4d"):
        facts.known_facts("", results)
    assert facts.known_facts("GPU-5e6f7a8b", results) == TWO


@pytest.mark.parametrize("which", ["0", "GPU-nowhere"])
def test_an_index_means_nothing_on_a_cluster(results, which):
    facts.keep(ONE, results)
    with pytest.raises(InputError, match=r"not known; known are nvml:GPU-1a2b3c4d .* an index means nothing"):
        facts.known_facts(which, results)


def test_away_from_any_login_node_one_line_says_so(results, monkeypatch, capsys):
    monkeypatch.chdir(results)
    monkeypatch.setenv("PATH", results)
    assert main(["identify", "--slurm=--partition=gpu"]) == 2
    assert "error: sbatch is not on PATH" in capsys.readouterr().err
