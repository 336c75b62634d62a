"""The broker in a Kubernetes cluster: manifests by the API's own schemas, and the broker in namespaces like pods'."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
import yaml

from kernel_dvfs.cli.main import main

DAEMON = ["hooks", "pods", "--image", "r/kernel-dvfs@sha256:0", "--allow", "1000,1001"]
POD = [
    "hooks",
    "pods",
    "--image",
    "mine",
    "--",
    "kernel-dvfs",
    "apply",
    "--pair",
    "1470,auto",
    "--",
    "python",
    "train.py",
]


def rendered(capsys, *words):
    assert main(list(words)) == 0
    return yaml.safe_load(capsys.readouterr().out)


@pytest.mark.parametrize("words", [DAEMON, [*DAEMON, "--after", "core=345-1700", "--runtime-class", ""], POD])
def test_the_manifests_are_what_the_cluster_takes(capsys, words):
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate checks manifests")
    made = rendered(capsys, *words)
    for version in ("1.28", "1.32"):
        validate.validate(made, version, strict=True)
    made["spec"]["hostPid"] = True
    with pytest.raises(Exception, match="hostPid"):
        validate.validate(made, "1.32", strict=True)


def test_the_daemon_has_one_right_and_a_pod_cannot_write_where_it_listens(capsys):
    daemon, pod = rendered(capsys, *DAEMON)["spec"]["template"]["spec"], rendered(capsys, *POD)["spec"]
    (own,), (client,) = daemon["containers"], pod["containers"]
    assert own["command"] == ["kernel-dvfs", "broker", "--allow", "1000,1001", "--hours", "168"]
    assert own["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert own["securityContext"]["readOnlyRootFilesystem"] and not daemon["automountServiceAccountToken"]
    assert client["volumeMounts"][0]["readOnly"] and "securityContext" not in client
    assert pod["securityContext"] == {"runAsUser": 1000, "runAsNonRoot": True}
    assert daemon["volumes"][0]["hostPath"]["path"] == pod["volumes"][0]["hostPath"]["path"] == "/run/kernel-dvfs"


@pytest.mark.parametrize("words", [[*DAEMON[:-1], "alice"], [*DAEMON[:-2]], [*DAEMON, "--after", "core=x"]])
def test_what_no_broker_of_a_cluster_could_read_is_refused_in_a_line(refused, words):
    refused(*words)


# --- in namespaces ----------------------------------------------------------------------------------------------------

ALONE = ["unshare", "--mount", "--uts", "--ipc", "--net"]
POD_ALONE = [*ALONE, "--pid", "--fork", "--kill-child", "--mount-proc"]


def in_namespaces():
    if os.getuid() or not shutil.which("unshare"):
        return False
    return subprocess.run([*POD_ALONE, "true"], capture_output=True).returncode == 0


@pytest.fixture
def cluster(lab):
    """A node with two fake boards: `pod(board, *words, uid)` starts a command as a pod does, with that board's node
    alone and the socket's folder read-only; the broker has namespaces of its own, too."""
    if not in_namespaces():
        pytest.skip("namespaces need root and unshare")
    made = lab("h200,h200")
    made.boards.set(1, time="real", utilisation=0.5)
    folder = made.boards.path.parent
    import fake

    made.more |= {
        "KERNEL_DVFS_BROKER_DIR": str(folder / "broker"),
        "KERNEL_DVFS_DEVICES_DIR": str(fake.device_nodes(folder)),
    }
    made.boards.set(deny=1)
    made.boards.set(1, deny=1)
    made.daemon(folder / "broker/broker.sock", *ALONE, sys.executable, "-m", "kernel_dvfs", "broker", "--allow", "1000")
    (made.folder).chmod(0o777)
    made.boards.path.chmod(0o666)
    folder.chmod(0o777)

    def pod(board, *words, uid=0):
        devices = folder / f"dev-of-{board}"
        devices.mkdir(exist_ok=True)
        node = sorted((folder / "dev").iterdir(), reverse=True)[board]
        if not (devices / node.name).is_symlink():
            (devices / node.name).symlink_to(os.readlink(node))
        at = folder / "broker"
        mounts = f"mount --bind {at} {at} && mount -o remount,bind,ro {at} && exec "
        # the tests' folders are root's: to find the fake NVML there is a right that such a user has beside his own
        finds = "--inh-caps=+dac_read_search --ambient-caps=+dac_read_search"
        as_user = f"setpriv --reuid={uid} --regid={uid} --clear-groups {finds} " if uid else ""
        command = " ".join(f"'{word}'" for word in [sys.executable, "-m", "kernel_dvfs", *words])
        own = {"KERNEL_DVFS_DEVICES_DIR": str(devices), "PYTHONDONTWRITEBYTECODE": "1"}
        return made.start(*POD_ALONE, "sh", "-c", mounts + as_user + command, **own)

    return made, pod


WAITS = ("--", sys.executable, "-c", "import time; time.sleep(600)")


def test_a_pod_sets_clocks_of_its_own_gpu_and_they_come_back_when_it_is_killed(cluster):
    made, pod = cluster
    uuids = [made.boards.get("uuid", board) for board in (0, 1)]
    running = pod(1, "apply", "--gpu", uuids[1], "--pair", "1500,2201", *WAITS)
    locked = lambda: (made.boards.get("core_lock", 1), made.boards.get("mem_lock", 1))  # noqa: E731
    assert made.comes_to(lambda: locked() == ("345-1500", "2201-2201") or running.poll() is not None)
    assert running.poll() is None, running.communicate()
    # root of a pod is root of the node by its number, and gets no GPU but its own, nor takes one
    other = pod(0, "apply", "--gpu", uuids[1], "--pair", "900,2201", *WAITS)
    assert other.wait(60) == 2 and "is held by" in other.stderr.read()
    evicts = pod(0, "broker", "--evict", uuids[1])
    assert evicts.wait(60) == 2 and locked() == ("345-1500", "2201-2201"), evicts.stderr.read()
    os.killpg(running.pid, signal.SIGKILL)  # as a runtime ends a pod
    assert made.comes_to(lambda: locked() == ("none", "none"))


def test_a_pod_of_a_user_who_is_not_named_and_one_that_would_replace_the_socket_get_nothing(cluster):
    made, pod = cluster
    uuid = made.boards.uuid
    stranger = pod(0, "apply", "--gpu", uuid, "--pair", "1500,2201", *WAITS, uid=1001)
    assert stranger.wait(60) == 2 and "1001" in stranger.stderr.read()
    named = pod(0, "apply", "--gpu", uuid, "--pair", "1500,2201", "--", "true", uid=1000)
    assert named.wait(60) == 0, named.stderr.read()
    socket = made.boards.path.parent / "broker/broker.sock"
    thief = pod(0, "apply", "--gpu", uuid, "--pair", "1500,2201", "--", "rm", str(socket))
    assert thief.wait(60) != 0 and socket.exists() and "Read-only" in thief.stderr.read()


def test_a_container_with_device_nodes_and_without_nvml_says_what_is_missing(monkeypatch, tmp_path):
    from kernel_dvfs_clocks.nvml import library

    monkeypatch.setattr(library, "_NODES", str(tmp_path))
    line = str(library.translate("nvmlInit", 12))
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in line and "\n" not in line
    monkeypatch.setattr(library, "_NODES", str(tmp_path / "none"))
    assert "install NVIDIA's driver" in str(library.translate("nvmlInit", 12))
