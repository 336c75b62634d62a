"""A real GPU that is known from its file, as a study beside a batch system finds it: no driver is asked."""

import json
from pathlib import Path

BOARD = {
    **{"name": "NVIDIA H200", "uuid": "GPU-fa4e0000-0000-4000-8000-00000000fa4e", "slug": "nvidia-h200-fa4e0000"},
    **{"pci_bus_id": "0", "driver": "580", "vbios": None, "power_limit_mw": 700_000, "ecc": True},
    **{"compute_capability": "9.0", "sm_count": 132, "threads_per_sm": 2048, "energy_scope": "board"},
    "clocks": {"core_mhz": {"listed": {"2201": [345, 1980]}}, "mem_mhz": [2201]},
}


def known(results, **changed) -> str:
    """Write what is known of the board, some of it changed, into a results folder; how a configuration names it."""
    folder = Path(results) / BOARD["slug"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(BOARD | changed))
    return f"nvml:{BOARD['uuid']}"
