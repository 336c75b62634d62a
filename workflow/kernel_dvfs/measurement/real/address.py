"""Where the measuring process of a GPU listens: one socket per user, GPU and working directory."""

import os

from kernel_dvfs.gpu.draws import blake2b
from kernel_dvfs.gpu.nvml.lease import folder


def socket_path(uuid: str) -> str:
    """Short, since a socket's path holds 107 bytes, wherever the working directory is."""
    name = blake2b(f"{uuid}|{os.getcwd()}".encode(), digest_size=6).hexdigest()
    return os.path.join(folder(), f"kernel-dvfs-{os.getuid()}-{name}.sock")
