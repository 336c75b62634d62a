"""The broker as it is set up: for which users, by which systemd unit, and of code that nobody but root can change."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import sys
from collections.abc import Iterator

from kernel_dvfs_clocks import package
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.trust import is_roots_own

# of systemd.exec(5): what a broker has no use for
_KEPT_FROM_IT = (
    *("NoNewPrivileges", "LockPersonality", "PrivateNetwork", "PrivateTmp", "ProtectClock", "ProtectControlGroups"),
    *("ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables"),
    *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID"),
)


def users(text: str, option: str = "--allow") -> frozenset[int]:
    """Return the user ids of `alice,1001,%students`: names, numbers, and groups with all their members; root always.

    Raises InputError for one that this machine does not know.
    """
    uids = {0}
    for word in filter(None, text.split(",")):
        try:
            if word.startswith("%"):
                group = grp.getgrnam(word[1:])
                uids |= {pwd.getpwnam(name).pw_uid for name in group.gr_mem}
                uids |= {entry.pw_uid for entry in pwd.getpwall() if entry.pw_gid == group.gr_gid}
            else:
                uids.add(int(word) if word.isdecimal() and len(word) <= 10 else pwd.getpwnam(word).pw_uid)
        except KeyError:
            raise InputError(f"{option} {word}: no such user or group here") from None
    return frozenset(uids)


def unit(allow: str, after: str, hours: float, power: str = "") -> str:
    """Return the systemd unit of a broker with these options, started by this Python from where this library lies now.

    Raises InputError where others than root could change that.
    """
    check_owned_by_root()
    # -P: nothing is run from the folder that it happens to start in
    words = [sys.executable, "-P", "-m", "kernel_dvfs", "broker", "--allow", allow, "--hours", f"{hours:g}"]
    words += ["--after", after] if after else []
    words += ["--allow-power", power] if power else []
    return "\n".join(
        [
            "[Unit]",
            "Description=kernel-dvfs broker: GPU clocks for named users",
            "After=nvidia-persistenced.service",
            "",
            "[Service]",
            "Type=notify",
            f"Environment={_quoted('PYTHONPATH=' + package.FOLDER)}",
            f"ExecStart={shlex.join(words).replace('%', '%%')}",
            # the socket stays while it is down, so that nobody takes a GPU without it
            "RuntimeDirectory=kernel-dvfs",
            "RuntimeDirectoryPreserve=yes",
            "Restart=on-failure",
            # a line for each clock: none of them is dropped because a client has many set
            "LogRateLimitIntervalSec=0",
            "CapabilityBoundingSet=CAP_SYS_ADMIN",
            "DevicePolicy=closed",
            "DeviceAllow=char-nvidia* rw",
            *(f"{setting}=yes" for setting in _KEPT_FROM_IT),
            "ProtectSystem=strict",
            "ProtectHome=read-only",
            "ProtectProc=invisible",
            "RestrictAddressFamilies=AF_UNIX",
            "IPAddressDeny=any",
            "SystemCallArchitectures=native",
            "SystemCallFilter=@system-service",
            "SystemCallErrorNumber=EPERM",
            "UMask=0077",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
        ]
    )


def _quoted(word: str) -> str:
    """Return a word as systemd reads it: in quotes, with its own escapes (systemd.syntax(7), systemd.unit(5))."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def check_owned_by_root() -> None:
    """Raise InputError where root runs code that other users can change."""
    for path in _run_by_root():
        _check_roots_own(path)


def check_loaded() -> None:
    """As check_owned_by_root, for the libraries that this process has loaded by now, NVML's among them."""
    check_owned_by_root()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        mapped = [line.rstrip("\n").split(maxsplit=5) for line in file]
    for path in {words[5] for words in mapped if "x" in words[1] and len(words) > 5 and words[5].startswith("/")}:
        _check_roots_own(path)


def _check_roots_own(path: str) -> None:
    if not is_roots_own(path):
        raise InputError(
            f"{path}: others than root can change it, and the broker runs as root; install kernel-dvfs where only "
            "root may write (docs/cluster.md says how)"
        )


def _run_by_root() -> Iterator[str]:
    """Yield paths that decide what code this Python runs: its own, where it looks for modules, what it has imported,
    from where and from which compiled file, and each file of ours."""
    modules = list(sys.modules.values())
    imported = [getattr(module, name, None) for module in modules for name in ("__file__", "__cached__")]
    for path in (sys.executable, sys.prefix, sys.base_prefix, *sys.path, *(file for file in imported if file)):
        path = os.path.abspath(path)
        while not os.path.lexists(path):  # what is not there, who may make it?
            path = os.path.dirname(path)
        yield path
    packages = [name for name in os.listdir(package.FOLDER) if name.startswith("kernel_dvfs")]
    for folder, _, names in (entry for name in packages for entry in os.walk(os.path.join(package.FOLDER, name))):
        yield folder
        yield from (os.path.join(folder, name) for name in names)
