"""What `kernel-dvfs devices` prints on six kinds of machine, as a whole: tests/real/transcripts/.

A line that is to change is changed there by hand, and read as its user would read it.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent / "transcripts"
UNTIMED = [
    (r"moves every \d+ ms, [\d.]+ ms a read", "moves every 100 ms, 4.0 ms a read"),
    (r"leases of GPUs lie in \S+ \(KERNEL_DVFS_LOCK_DIR names it\)", "leases of GPUs lie in /run/lock"),
]


def devices(made, *, rights=False, container=False, **environment):
    """What `devices` prints to a user alice who has root's rights or not, in a container or not."""
    why = "user 0 has CAP_SYS_ADMIN" if rights else "user 1000 lacks CAP_SYS_ADMIN"
    code = f"""
import sys
from kernel_dvfs_clocks.setters import advice, choice
choice.may_set_clocks = lambda: ({rights}, {why!r})
advice.user = lambda: "alice"
advice.in_container = lambda: {container}
from kernel_dvfs.cli import devices
devices.estimates = lambda *_: ([], ["(what a study would take)"])
from kernel_dvfs.cli.main import main
sys.exit(main(["devices"]))
"""
    done = made.python(code, **environment)
    assert done.returncode == 0 and not done.stderr, done.stderr
    said = done.stdout
    for pattern, instead in UNTIMED:
        said = re.sub(pattern, instead, said)
    offered = made.boards.path.parent / "offered"
    said = said.replace(f"{offered}/broker", "/run/kernel-dvfs").replace(
        f"{offered}/zeusd.sock", "/run/zeusd/zeusd.sock"
    )
    return said.replace(f"{offered}/", "/usr/bin/")


KINDS = {
    "root on bare metal": ("nvml", {"rights": True}),
    "no root, with zeusd": ("zeusd", {}),
    "no root, with an entry for sudo": ("sudo", {}),
    "job of Slurm with --gpu-freq": ("slurm", {"SLURM_JOB_ID": "42", "SLURM_GPU_FREQ": "1500,memory=2201"}),
    "container without rights": ("none", {"container": True}),
    "DCGM host": ("dcgm", {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_devices_says_what_works_here_and_what_to_ask_for(lab, kind):
    way, how = KINDS[kind]
    made = lab(time="real")
    made.offer(way)
    # neither a Slurm nor tools of this machine's own
    only = f"{made.boards.path.parent / 'offered'}:{Path(sys.executable).parent}"
    said = devices(made, **({"PATH": only} | how))
    path = FOLDER / f"{re.sub(r'[^a-z]+', '-', kind.lower())}.txt"
    assert said == (path.read_text() if path.exists() else ""), f"{path}:\n{said}"
    assert made.boards.get("sets") == "0", "nothing was set"


def test_the_lines_for_sudoers_in_the_docs_are_those_that_it_prints(root):
    block = re.search(r"```sudoers\n(.*?)```", (root / "docs/cluster.md").read_text(), re.S)[1]
    said = (FOLDER / "dcgm-host.txt").read_text()
    assert all(line in said for line in block.splitlines())


def test_what_is_copied_for_the_broker_is_all_that_it_imports(root, tmp_path):
    said = (FOLDER / "dcgm-host.txt").read_text()
    (copied,) = re.findall(r"^ *cp -rL (.+) \S+$", said, re.M)
    subprocess.run(["cp", "-rL", *copied.split(), tmp_path], cwd=root, check=True)
    words = [sys.executable, "-S", "-P", "-m", "kernel_dvfs", "broker", "--allow", "root", "--unit"]
    done = subprocess.run(words, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0 and "ExecStart=" in done.stdout, done.stderr


def test_the_six_kinds_are_those_that_have_a_transcript():
    assert len(list(FOLDER.glob("*.txt"))) == len(KINDS) == 6
