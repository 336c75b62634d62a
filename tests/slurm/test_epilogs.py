"""Prolog and epilog of a real slurmd, as root runs them: whatever a job leaves behind, the GPUs that answer are free
for the next one, and nothing that a user has planted is run."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cluster
import fake
import pytest

from kernel_dvfs_clocks import package

pytestmark = pytest.mark.workflow
NOBODY = 65534
# what root's Python finds under these names where it looks at what users can write
NAMES = ("typing", "argparse", "json", "subprocess", "pynvml", "dataclasses")
# and what Python itself, or its -m, would begin with
FIRST = ("sitecustomize", "usercustomize", "kernel_dvfs")
GPU_LOST = "the GPU is lost"
SCRIPT = """#!/bin/sh
# {name} of a node, as docs/cluster.md has it
{settings}
cd {folder}
"{python}" -P -m kernel_dvfs reset --all {how} >>{folder}/{name}.log 2>&1
code=$?
echo "$SLURM_JOB_ID $code" >>{folder}/{name}.done
exit $code
"""
# a job that leaves what it was told to, and ends when it may
JOB = """#!/bin/sh
{leaves}
touch {folder}/begun
while [ ! -e {folder}/go ]; do sleep 0.1; done
"""
# locks the clocks of a GPU, and leaves nobody who would restore them
HOLDS = """
import os, signal
from kernel_dvfs_clocks.guard import Guard
guard = Guard({uuid!r}, through="nvml").__enter__()
guard.lock((345, 900), (2201, 2201))
os.kill(guard.holder.pid, signal.SIGKILL)
{then}
"""


class Node:
    """A node with two fake GPUs, whose prolog and epilog reset them."""

    def __init__(self, library: Path):
        # where any user can look and write, unlike below a test's own folder
        self.folder = Path(tempfile.mkdtemp(prefix="kdvfs-node-"))
        self.folder.chmod(0o1777)
        scripts = {name: self.folder / name for name in ("prolog", "epilog")}
        more = "\n".join(f"{name.capitalize()}={path}" for name, path in scripts.items())
        self.slurm = cluster.Cluster(self.folder / "slurm", more)
        shutil.copytree(library.parent, self.folder / "nvml", symlinks=True)
        self.boards = fake.Boards(self.folder / "nvml" / library.name, self.folder / "boards.state", "h200,h200")
        self.locks = self.folder / "locks"
        self.locks.mkdir()
        self.locks.chmod(0o1777)
        own = {"KERNEL_DVFS_LOCK_DIR": str(self.locks), "KERNEL_DVFS_BROKER_DIR": str(self.folder / "broker")}
        own |= {"LD_LIBRARY_PATH": str(self.folder / "nvml"), "FAKENVML_STATE": str(self.boards.path)}
        # an administrator who was careless, too: the second folder is any user's to make
        path = os.pathsep.join([package.FOLDER, str(self.folder / "of_nobody")])
        self.own = own | {"PYTHONPATH": path, "FAKENVML_ROOT": "1"}
        settings = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in self.own.items())
        for name, how in (("prolog", "--stale"), ("epilog", "--after-job")):
            about = {"name": name, "settings": settings, "python": sys.executable, "how": how, "folder": self.folder}
            scripts[name].write_text(SCRIPT.format(**about))
            scripts[name].chmod(0o755)

    def begin(self, leaves: str, *options: str) -> str:
        """The number of a job that has begun, and left what it was told to."""
        for name in ("begun", "go"):
            (self.folder / name).unlink(missing_ok=True)
        script = self.folder / "job.sh"
        script.write_text(JOB.format(leaves=leaves, folder=self.folder))
        script.chmod(0o755)
        words = ("sbatch", "--parsable", "--partition=gpu", f"--chdir={self.folder}", "--output=/dev/null", *options)
        job = self.slurm.ask(*words, str(script))
        assert job.isdecimal(), self.logs()
        self.wait_for((self.folder / "begun").exists, "the job to begin")
        return job

    def end(self, job: str) -> int:
        """Let a job end; returns what its epilog ended with."""
        (self.folder / "go").touch()
        return self.code("epilog", job)

    def code(self, name: str, job: str) -> int:
        """What the prolog or epilog of a job has ended with."""
        done = self.folder / f"{name}.done"

        def found() -> list[str]:
            lines = done.read_text().splitlines() if done.exists() else []
            return [line.split()[1] for line in lines if line.split()[0] == job]

        self.wait_for(found, f"the {name} of job {job}")
        return int(found()[0])

    def said(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def lock(self, board: int) -> None:
        """Leave a board locked, with nobody who would free it and no lease."""
        code = "from kernel_dvfs_clocks.nvml.board import Board\nfrom kernel_dvfs_clocks.nvml.library import Library\n"
        code += f"with Library() as nvml: Board(nvml, {self.uuid(board)!r}).lock_core(345, 900)"
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | self.own | {"PYTHONPATH": package.FOLDER}, check=True
        )
        assert not self.is_free(board)

    def uuid(self, board: int) -> str:
        return self.boards.get("uuid", board)

    def is_free(self, board: int) -> bool:
        return [self.boards.get(f"{domain}_lock", board) for domain in ("core", "mem")] == ["none", "none"]

    def state(self) -> str:
        """The node's, with why."""
        return self.slurm.ask("sinfo", "-h", "-p", "gpu", "-o", "%T %E")

    def resume(self) -> None:
        (host,) = self.slurm.ask("sinfo", "-h", "-p", "gpu", "-o", "%n").split()
        self.slurm.ask("scontrol", "update", f"nodename={host}", "state=resume")
        self.wait_for(lambda: "idle" in self.state(), "the node to be taken up again")

    def wait_for(self, true, what: str, seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"waited for {what}: {self.state()}\n{self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        paths = [*self.folder.glob("*.log"), *(self.folder / "slurm").glob("*.log")]
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in paths)


@pytest.fixture(scope="module")
def whole_node(fake_library):
    if why := cluster.missing():
        pytest.skip(f"no Slurm can be started here: {why}")
    made = Node(fake_library)
    try:
        made.slurm.start()
        yield made
    finally:
        made.slurm.stop()
        shutil.rmtree(made.folder)


@pytest.fixture
def node(whole_node):
    yield whole_node
    whole_node.slurm.ask("scancel", "--user=root")
    whole_node.boards.set(lost=0)
    whole_node.boards.set(1, lost=0)
    for path in [*whole_node.locks.iterdir(), *whole_node.folder.glob("*.log")]:
        path.unlink()


def test_a_lost_gpu_of_a_job_keeps_its_neighbour_from_nobody_and_drains_the_node(node):
    job = node.begin("", "--gpus=2")
    assert node.code("prolog", job) == 0
    node.lock(0)
    node.boards.set(1, lost=1)
    assert node.end(job) == 2 and GPU_LOST in node.said("epilog") and node.is_free(0), node.logs()
    node.wait_for(lambda: "Epilog error" in node.state(), "the node to be drained")
    node.boards.set(1, lost=0)
    node.resume()


def test_a_job_that_had_the_healthy_gpu_alone_is_no_concern_of_the_lost_one(node):
    node.boards.set(1, lost=1)
    job = node.begin("", "--gpus=1")
    assert node.code("prolog", job) == 0, "a lost GPU without a lease is no obstacle to the next job"
    node.lock(0)
    assert node.end(job) == 0 and node.is_free(0), node.logs()
    assert node.said("epilog").count("both locks reset") == 1 and GPU_LOST not in node.said("epilog")
    assert "Epilog" not in node.state()


def test_a_planted_lease_of_repeated_names_keeps_no_epilog_and_no_prolog(node):
    text = '{"requested": "x", ' + ", ".join(['"a": 1'] * 8000) + "}"
    assert len(text) > 60_000
    (node.folder / "planted").write_text(text)
    plants = [f"cp {node.folder}/planted {node.locks}/kernel-dvfs-{node.uuid(board)}.json" for board in (0, 1)]
    job = node.begin("\n".join(plants), "--gpus=2", f"--uid={NOBODY}", f"--gid={NOBODY}")
    owner = (node.locks / f"kernel-dvfs-{node.uuid(0)}.json").stat().st_uid
    assert owner == NOBODY, "planted by a user"
    for board in (0, 1):
        node.lock(board)
    assert node.end(job) == 0 and node.is_free(0) and node.is_free(1), node.logs()
    assert "a run whose lease cannot be read" in node.said("epilog")
    # planted for the next one: its prolog frees what it says was left, and goes on
    for board in (0, 1):
        shutil.copy(node.folder / "planted", node.locks / f"kernel-dvfs-{node.uuid(board)}.json")
        node.lock(board)
    job = node.begin("", "--gpus=2")
    assert node.code("prolog", job) == 0 and node.is_free(0) and node.is_free(1), node.logs()
    assert node.end(job) == 0 and "Epilog" not in node.state()


@pytest.mark.parametrize("by", ["scancel", "scancel --signal=KILL", "itself"])
def test_a_job_that_is_killed_with_its_holder_leaves_no_clock_locked(node, by):
    then = (
        "os.kill(os.getpid(), signal.SIGKILL)"
        if by == "itself"
        else f"open('{node.folder}/begun', 'w'); signal.pause()"
    )
    code = HOLDS.format(uuid=node.uuid(0), then=then)
    (node.folder / "holds.py").write_text(code)
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in node.own.items())
    job = node.begin(f"{exports} {sys.executable} {node.folder}/holds.py", "--gpus=1")
    assert not node.is_free(0) and list(node.locks.glob("*.json"))
    if by != "itself":
        node.slurm.ask(*by.split(), "--full", job)
        (node.folder / "go").touch()  # of the script, where only what it has started was killed
    assert (node.end(job) if by == "itself" else node.code("epilog", job)) == 0, node.logs()
    assert node.is_free(0) and not list(node.locks.glob("*.json"))
    assert "Epilog" not in node.state()


def test_root_runs_nothing_that_a_job_has_planted(node):
    """Modules where a job can write, in its own folder, beside the leases and in its environment: the mark of one that
    root has run is looked for."""
    mark = node.folder / "mark"
    plant = f"import os\nopen({str(mark)!r}, 'a').write(f'{{__name__}} as {{os.geteuid()}}\\n')\n"
    (node.folder / "plant").write_text(plant)
    lines = []
    for place, names in ((node.folder, NAMES + FIRST), (node.locks, NAMES + FIRST), (node.folder / "of_nobody", NAMES)):
        lines.append(f"mkdir -p {place}")
        lines += [f"cp {node.folder}/plant {place}/{name}.py" for name in names]
    job = node.begin(
        "\n".join(lines),
        *("--gpus=2", f"--uid={NOBODY}", f"--gid={NOBODY}"),
        f"--export=ALL,PYTHONPATH={node.folder}/of_nobody,PYTHONSTARTUP={node.folder}/plant,HOME={node.folder}",
    )
    assert (node.folder / "typing.py").stat().st_uid == NOBODY and (node.locks / "json.py").exists()
    node.lock(0)
    try:
        assert node.end(job) == 0 and node.is_free(0), node.logs()
        following = node.begin("", "--gpus=2")
        assert node.code("prolog", following) == 0 and node.end(following) == 0, node.logs()
        assert not mark.exists(), mark.read_text()
    finally:
        for name in NAMES + FIRST:
            (node.folder / f"{name}.py").unlink(missing_ok=True)
        shutil.rmtree(node.folder / "of_nobody", ignore_errors=True)
