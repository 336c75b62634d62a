"""Clocks through zeusd, the Zeus project's daemon: HTTP over its Unix socket.

Protocol: https://github.com/ml-energy/zeus, zeusd/src/routes/gpu.rs and docs, "HTTP API Reference". Since zeusd 0.4
parameters are in the query and `GET /discover` says what is offered; before, they were JSON, below /gpu/<index>/, and
nothing said which GPU an index is: it is the host's, and a container that has one GPU of eight would call it 0. So a
daemon from before is asked only where the machine has one GPU.
zeusd has no lease and restores nothing: the holder asks it to.
"""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from kernel_dvfs_clocks.nvml.library import NO_PERMISSION, NOT_SUPPORTED, TIMEOUT, UNKNOWN, patience_s, refused
from kernel_dvfs_clocks.setters.setter import Capabilities, Domain, Setter

if TYPE_CHECKING:
    from kernel_dvfs_clocks.nvml.board import Board

# Zeus's own variables; where neither is set, the places of its default and of its systemd unit
SOCKET, TOKEN = "ZEUSD_SOCK_PATH", "ZEUSD_TOKEN"
PCI_DEVICES = "/sys/bus/pci/devices"  # all of the machine's, in a container too
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # PCI's vendor; its class of VGA and 3D controllers
PLACES = ("/run/zeusd/zeusd.sock", "/var/run/zeusd.sock")
_REMEDY = "look at zeusd's log"


def socket_path() -> str:
    """Return where zeusd listens; "" where no socket is found."""
    named = os.environ.get(SOCKET)
    return named or next((path for path in PLACES if os.path.exists(path)), "")


class Zeusd(Setter):
    """The GPU of `board` through the daemon that listens here. Raises NvmlError where none does, or where it cannot be
    told which of its GPUs is this one."""

    name = "zeusd"
    capabilities = Capabilities(needs="zeusd with the API group gpu-control, and a token where it wants one")

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self._offer = offer(board.uuid)
        if self._offer is None and (against := why_not_by_index()):
            raise refused("zeusd", board.uuid, against, "have zeusd updated to 0.4 or newer")
        self._index = 0 if self._offer is None else _index(self._offer, board)

    def _lock(self, domain: Domain, lowest_mhz: int, highest_mhz: int) -> None:
        self._post(f"set_{_WORDS[domain]}_locked_clocks", min_clock_mhz=lowest_mhz, max_clock_mhz=highest_mhz)

    def _reset(self, domain: Domain) -> None:
        self._post(f"reset_{_WORDS[domain]}_locked_clocks")

    def _post(self, what: str, **numbers: int) -> None:
        # block: answer when the driver has; without it a refusal would go unseen
        if self._offer is not None:
            query = urlencode({"gpu_ids": self._index, **numbers, "block": "true"})
            status, text = _ask(self.uuid, "POST", f"/gpu/{what}?{query}")
        else:
            status, text = _ask(self.uuid, "POST", f"/gpu/{self._index}/{what}", {**numbers, "block": True})
        if status == 200:
            return
        code, remedy = UNKNOWN, _REMEDY
        if status == 401:
            code, remedy = NO_PERMISSION, f"have a token with the scope gpu-control issued, and set {TOKEN}"
        elif status == 403:
            code, remedy = NO_PERMISSION, "zeusd must run as root, and the token must have the scope gpu-control"
        elif status == 404:
            code, remedy = NO_PERMISSION, "have zeusd started with the API group gpu-control"
        elif re.search("not supported", text, re.IGNORECASE):
            code, remedy = NOT_SUPPORTED, "kernel-dvfs devices shows what the GPU can do"
        raise refused(f"zeusd {what}", self.uuid, f"{text or 'refused'} (HTTP {status})", remedy, code)


_WORDS: dict[Domain, str] = {"core": "gpu", "mem": "mem"}


def offer(uuid: str = "this machine") -> dict[str, Any] | None:
    """Return what zeusd says that it offers; None from one before 0.4, which cannot be asked. Raises NvmlError where
    none answers."""
    status, text = _ask(uuid, "GET", "/discover")
    if status == 404:
        return None
    try:
        offered = json.loads(text)
        if status == 200 and isinstance(offered, dict):
            return offered
    except ValueError:
        pass
    raise refused("zeusd /discover", uuid, f"not understood: HTTP {status}, {text[:80]}", _REMEDY)


def why_not_by_index() -> str:
    """Return why a zeusd from before 0.4, which says nothing of its GPUs, must not be asked for one; "" where the
    machine has only one."""
    count = _on_bus()
    if count == 1:
        return ""
    return f"it is from before 0.4 and does not say which GPU is which; the PCI bus of this machine shows {count}"


def _on_bus() -> int:
    """Return how many NVIDIA GPUs the machine has: NVML shows a container only its own."""
    count = 0
    for device in os.listdir(PCI_DEVICES) if os.path.isdir(PCI_DEVICES) else []:
        with suppress(OSError):
            vendor, kind = (_line(os.path.join(PCI_DEVICES, device, name)) for name in ("vendor", "class"))
            count += vendor == _NVIDIA and kind.startswith(_DISPLAY)
    return count


def _line(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read().strip()


def _index(offer: dict[str, Any], board: Board) -> int:
    """Return the daemon's index of a GPU: a container may see fewer GPUs than the daemon does."""
    listed = offer.get("gpus")
    if isinstance(listed, list):
        bus_id = _bus_id(board.pci_bus_id())
        for gpu in listed:
            if isinstance(gpu, dict) and _bus_id(str(gpu.get("pci_address"))) == bus_id and type(gpu.get("id")) is int:
                return gpu["id"]
        raise refused("zeusd /discover", board.uuid, f"lists no GPU at {bus_id}", "it serves another machine's GPUs")
    ids = offer.get("gpu_ids")
    # where both see every GPU of the machine, both have them in the order of their addresses
    if not isinstance(ids, list) or not len(ids) == board.count() == _on_bus():
        raise refused(
            "zeusd /discover",
            board.uuid,
            f"numbers {str(ids)[:80]} without addresses; {board.count()} GPU(s) are visible here, and {_on_bus()} on "
            "the PCI bus",
            "have zeusd updated: newer ones say which is which",
        )
    return int(ids[board.index()])


def _bus_id(text: str) -> str:
    """Return domain:bus:device.function with a domain of four digits: NVML writes eight."""
    return text.lower().removeprefix("0000") if len(text.partition(":")[0]) == 8 else text.lower()


def _ask(uuid: str, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
    """Return (HTTP status, text). Raises NvmlError where zeusd cannot be reached."""
    at = socket_path()
    if not at:
        raise refused("zeusd", uuid, f"no socket at {' or '.join(PLACES)}", f"name it in {SOCKET}", NO_PERMISSION)
    token = os.environ.get(TOKEN, "")
    if not (token.isascii() and token.isprintable()):  # not shown: it is a secret
        raise refused("zeusd", uuid, f"{TOKEN} is more than a line of ASCII", f"set {TOKEN} anew", NO_PERMISSION)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    import http.client  # half of what a holder imports else, and most set clocks by another way

    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.sock.settimeout(patience_s())
        connection.sock.connect(at)
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, " ".join(answer.read().decode("utf-8", "replace").split())
    except TimeoutError:
        raise refused(f"zeusd {path}", uuid, f"no answer in {patience_s():g} s", _REMEDY, TIMEOUT) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error)
        code = NO_PERMISSION if isinstance(error, PermissionError) else UNKNOWN
        raise refused(f"zeusd at {at}", uuid, reason, "is it running, and may you write to its socket?", code) from None
    finally:
        connection.close()
