"""What each kernel and pass costs at auto, and what the GPU's governor made of its clocks."""

import pandas as pd

CAPTION = "Kernels and passes at auto clocks, per launch: time, energy, power, and the clocks that the GPU ran"


def make(results) -> pd.DataFrame:
    """Rows in the order of the iteration, passes last; times in us, energies in mJ, powers in W, clocks in MHz."""
    about = results.workload.get("kernels", {})
    points = results.profile[results.profile.is_baseline]
    return pd.DataFrame(
        {
            "study": points.study,
            "id": points.target,
            "name": [about.get(name, {}).get("name", name) for name in points.target],
            "time_us": 1e6 * points.time_s,
            "time_sd_us": 1e6 * points.time_sd_s,
            "energy_mj": 1e3 * points.energy_j,
            "energy_sd_mj": 1e3 * points.energy_sd_j,
            "power_w": points.energy_j / points.time_s,
            "core_mhz": points.reached_core_mhz,
            "mem_mhz": points.reached_mem_mhz,
            "n": points.n,
            "verdict": points.verdict,
        }
    )
