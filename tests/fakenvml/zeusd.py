"""The stand-in of setters.py for zeusd, a daemon that speaks HTTP.

Made from zeusd: github.com/ml-energy/zeus, zeusd/src/routes/gpu.rs, src/auth.rs, src/error.rs, "HTTP API Reference".
"""

import json
import os
import socketserver
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from setters import NO_PERMISSION, boards, with_the_right


class _Zeusd(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    token, is_old = "", False

    def address_string(self):
        return "unix socket"

    def log_message(self, *_):
        pass

    def do_GET(self):
        nvml = boards()
        gpus = [
            {"id": index, "name": nvml.nvmlDeviceGetName(handle), "pci_address": _address(nvml, handle)}
            for index in range(nvml.nvmlDeviceGetCount())
            for handle in [nvml.nvmlDeviceGetHandleByIndex(index)]
        ]
        if self.is_old or self.path != "/discover":
            return self._answer(404, "")
        groups = ["gpu-read"] if os.environ.get("KERNEL_DVFS_TEST_ZEUSD") == "read" else ["gpu-control", "gpu-read"]
        found = {"gpus": gpus, "cpus": [], "enabled_api_groups": groups, "auth_required": bool(self.token)}
        return self._answer(200, found)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.token and self.headers.get("Authorization") != f"Bearer {self.token}":
            return self._answer(401, {"error": "Authentication required."})
        address = urlsplit(self.path)
        parts = address.path.strip("/").split("/")
        try:
            if self.is_old:
                _, index, what = parts
                asked = json.loads(body)
                wait = asked.pop("block")
                indices = [int(index)]
            else:
                _, what = parts
                asked = dict(parse_qsl(address.query, strict_parsing=True))
                wait = {"true": True, "false": False}[asked.pop("block")]
                indices = [int(each) for each in asked.pop("gpu_ids").split(",")]
            clocks = [int(asked.pop(key)) for key in ("min_clock_mhz", "max_clock_mhz") if what.startswith("set_")]
            assert wait and not asked
        except (KeyError, ValueError, AssertionError) as error:
            return self._answer(400, f"Query deserialize error: missing field {error}")
        call = {"gpu": "Gpu", "mem": "Memory"}[what.split("_")[1]]
        verb = "Set" if what.startswith("set_") else "Reset"
        if what == "set_gpu_locked_clocks" and (begun := os.environ.get("KERNEL_DVFS_TEST_ZEUSD_SLOW")):
            Path(begun).touch()
            time.sleep(float(os.environ["KERNEL_DVFS_TEST_ZEUSD_SLOW_S"]))
        nvml = boards()
        for index in indices:
            if index >= nvml.nvmlDeviceGetCount():
                return self._answer(400, f"GPU index {index} does not exist.")
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                getattr(nvml, f"nvmlDevice{verb}{call}LockedClocks")(handle, *clocks)
            except nvml.NVMLError as error:
                status = {NO_PERMISSION: 403, 2: 400}.get(error.value, 500)
                said = f"NVML error: {'the requested operation is not supported' if error.value == 3 else error}"
                return self._answer(status, said if self.is_old else {"errors": {str(index): said}})
        return self._answer(200, "")

    def _answer(self, status, content):
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _address(nvml, handle):
    """As `lspci -D` writes it: the domain has four digits."""
    return nvml.nvmlDeviceGetPciInfo(handle).busId.lower()[4:]


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def zeusd(words):
    """zeusd SOCKET [old] [TOKEN]"""
    with_the_right()
    _Zeusd.is_old = "old" in words
    _Zeusd.token = next((word for word in words[1:] if word != "old"), "")
    with _Server(words[0], _Zeusd) as server:
        os.chmod(words[0], 0o666)
        server.serve_forever()
