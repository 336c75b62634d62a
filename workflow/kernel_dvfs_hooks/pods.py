"""The broker for the pods of a Kubernetes cluster: a DaemonSet, and what a pod that asks it needs."""

from __future__ import annotations

from typing import Any

from kernel_dvfs_clocks.setters.broker import FOLDER

_NAME = "kernel-dvfs-broker"


def daemon_set(image: str, allow: str, after: str, hours: float, namespace: str, runtime: str) -> dict[str, Any]:
    """Return the manifest of a DaemonSet that runs the broker on each GPU node (apps/v1).

    image: of this repository's Dockerfile, by digest. allow: user ids that pods run as, with commas; 0 always may.
    after, hours: as of the broker. runtime: the RuntimeClass that brings NVML and device nodes; "": none is named.
    """
    words = ["kernel-dvfs", "broker", "--allow", allow, "--hours", f"{hours:g}"]
    words += ["--after", after] if after else []
    container = {
        "name": "broker",
        "image": image,
        # as broker_unit has it: nothing is run from the folder that it happens to start in
        "command": words,
        "workingDir": "/",
        "env": [
            # all GPUs of the node, and NVML: no CUDA; a GPU that is asked for as a resource would be kept from pods
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
        ],
        "securityContext": {
            "runAsUser": 0,
            "readOnlyRootFilesystem": True,
            # what the driver asks of who sets clocks
            "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "readinessProbe": {
            "exec": {"command": ["kernel-dvfs", "broker", "--list"]},
            "periodSeconds": 60,
            "timeoutSeconds": 20,
        },
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [{"name": "socket", "mountPath": FOLDER}],
    }
    pod: dict[str, Any] = {
        # the broker watches the process that has a GPU, and its log names it: both by its id on the node
        "hostPID": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "system-node-critical",
        # it restores all clocks before it ends
        "terminationGracePeriodSeconds": 60,
        "containers": [container],
        "volumes": [{"name": "socket", "hostPath": {"path": FOLDER, "type": "DirectoryOrCreate"}}],
    }
    if runtime:
        pod["runtimeClassName"] = runtime
    labels = {"app.kubernetes.io/name": _NAME}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": _NAME, "namespace": namespace, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            # one broker a node: the old one has ended before the new one listens
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def client_pod(image: str, command: list[str], user: int) -> dict[str, Any]:
    """Return the manifest of a pod that runs a command at clocks: what of it is not usual is the socket's folder."""
    container = {
        "name": "training",
        "image": image,
        "command": command,
        # compute: CUDA; utility: NVML, which is what clocks and joules are read through
        "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        # read-only: who may write there could put a socket of his own in its place; connecting needs no more
        "volumeMounts": [{"name": "clocks", "mountPath": FOLDER, "readOnly": True}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "kernel-dvfs-training"},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsUser": user, "runAsNonRoot": user != 0},
            "containers": [container],
            "volumes": [{"name": "clocks", "hostPath": {"path": FOLDER, "type": "Directory"}}],
        },
    }
