"""A cluster of one node with two fake GPUs, and clones whose studies run on it; skipped without Slurm."""

import importlib.util
import multiprocessing
import shutil
import subprocess
import sys
import time
from pathlib import Path

import cluster
import forked
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/workflow"))

from reduced_study import begun, clone, started  # noqa: E402 - of another folder of tests

# a GPU's sweep of two points a target
CONFIG = {
    "gpu": "gpu=nvml",
    "grid": "grid={core_mhz: [1500], mem_mhz: [], auto: true}",
    "auto_repeats": "auto_repeats=1",
    "validation_repeats": "validation_repeats=2",
    "limits_percent": "limits_percent=[0]",
    "data_parallel_batches": "data_parallel_batches=[]",
    "tensor_parallel_degrees": "tensor_parallel_degrees=[]",
    "window_s": "window_s=2",
    "windows": "windows=2",
    "max_windows": "max_windows=2",
    "energy_ci_percent": "energy_ci_percent=20",
    "warmup_s": "warmup_s=0.1",
    "by_clock": "by_clock={minutes: 0, worth_percent: 0.02, over_percent: 10}",
    "native": "native={cpu: 'off', cuda: 'off', pipeline: 'off'}",
}


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    if why := cluster.missing():
        pytest.skip(f"no Slurm can be started here: {why}")
    if not importlib.util.find_spec("snakemake_executor_plugin_cluster_generic"):
        pytest.skip("snakemake-executor-plugin-cluster-generic is not installed (make test installs it)")
    started = cluster.Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def new_site(slurm, fake_library, tmp_path):
    """A clone on the cluster, whose GPUs only its jobs can see, and none of them is known yet."""
    made = Site(slurm, fake_library, tmp_path)
    yield made
    slurm.ask("scancel", "--user=root")
    made.wait_for(lambda: not slurm.ask("squeue", "-h"), "the queue to empty")


@pytest.fixture(scope="session")
def identified(slurm, fake_library, tmp_path_factory) -> Path:
    """The results folder in which a job has noted which GPU it got: the same in each clone. Not to be changed."""
    made = Site(slurm, fake_library, tmp_path_factory.mktemp("identified"))
    done = made.identify()
    assert done.returncode == 0, done.stderr
    return made.directory / "results"


@pytest.fixture
def site(new_site, identified):
    """A clone on the cluster in which its GPU is known."""
    shutil.copytree(identified, new_site.directory / "results")
    return new_site


class Site:
    def __init__(self, slurm, library, folder: Path):
        import fake

        self.slurm = slurm
        self.boards = fake.Boards(library, folder / "boards.state", "h200,h200", time="virtual")
        self.boards.set(board=1, time="virtual")
        self.directory = clone(folder / "clone")
        shutil.copy2(ROOT / "tests/fakenvml/simulated_load.py", self.directory)
        fake.build_record(self.directory, self.directory / "simulated_load.py")
        self.locks = folder / "locks"
        self.locks.mkdir()
        # jobs find the fake NVML; the login node, which submits them, has none
        seen = f"ALL,LD_LIBRARY_PATH={library.parent},FAKENVML_STATE={self.boards.path}"
        self.environment = slurm.environment(
            KERNEL_DVFS_LOCK_DIR=str(self.locks), KERNEL_DVFS_TEST_LOAD="simulated_load.json", SBATCH_EXPORT=seen
        )

    def command(self, *targets, config=(), options=()) -> list:
        given = {each.partition("=")[0]: each for each in config}
        words = [sys.executable, "-m", "snakemake", "--profile", "profiles/slurm", *options]
        words += ["--seconds-between-status-checks", "1"]
        return [*words, "--config", *(CONFIG | given).values(), "--", *targets]

    def run(self, *targets, check=True, **more) -> str:
        """All that it says."""
        done = started(self.directory, self.command(*targets, **more), self.environment)
        logs = "".join(path.read_text() for path in self.directory.glob("logs/slurm/*.log"))
        assert (done.returncode == 0) == check, (done.stdout + logs)[-6000:]
        return done.stdout

    def begin(self, *targets, **more) -> multiprocessing.Process:
        """The same while it runs; what it says goes to the file `said`."""
        return begun(self.directory, self.command(*targets, **more), self.directory / "said", self.environment)

    def command_line(self, *words) -> subprocess.CompletedProcess:
        """kernel-dvfs on the login node."""
        environment = self.environment | {"PYTHONPATH": str(self.directory / "workflow")}
        return forked.run("-m", "kernel_dvfs", words, self.directory, environment, apart=True, seconds=120)

    def identify(self, options="--partition=gpu --gpus=1") -> subprocess.CompletedProcess:
        """Let a job look which GPU it gets, as users do before their first study."""
        return self.command_line("identify", f"--slurm={options}")

    def records(self) -> dict:
        """{path: time of its writing} of the sweep."""
        found = self.directory.glob("results/*/*/measurements/*/*/*/r*.json")
        return {path: path.stat().st_mtime_ns for path in found}

    def job(self) -> str:
        """The job that holds the GPU."""
        return self.slurm.ask("squeue", "-h", "--name=kernel-dvfs-gpu", "--states=RUNNING", "-o", "%i")

    def jobs(self) -> int:
        """How many jobs that hold a GPU were submitted from here."""
        return len(list(self.directory.glob("logs/slurm/kernel-dvfs-gpu-*.log")))

    def wait_for(self, true, what: str, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not true():
            said = self.directory / "said"
            assert time.monotonic() < end, f"waited for {what}: {said.read_text()[-3000:] if said.exists() else ''}"
            time.sleep(0.1)
