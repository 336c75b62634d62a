"""A small made-up study on disk, with all that a page shows and with names that must be escaped."""

import csv
import json
from pathlib import Path

from PIL import Image
from whole_schedule import whole_schedule

from kernel_dvfs.layout import PASS_STRICT, STRICT, published
from kernel_dvfs.measurement import setup
from kernel_dvfs.profile.store import COLUMNS, write_profile
from kernel_dvfs.registry import outputs

KERNELS = {
    "forward_gemm": {"row": 1, "section": "Forward", "name": "GEMM <b>&'\"", "kind": "gemm"},
    "forward_gelu": {"row": 2, "section": "Forward", "name": "GELU", "kind": "elementwise"},
    "backward_gemm": {"row": 10, "section": "Backward", "name": "GEMM", "kind": "gemm"},
}
SHIPPED = {name for name, each in outputs("gpu").of("table").items() if each.workload != "step"}
FIGURES = {name: each for name, each in outputs("gpu").of("figure").items() if each.workload != "step"}
NOT_MADE = ("baseline", "passes", "locking")


def made_up(
    folder: Path, kind: str = "simulated", fresh: bool = True, forecast: bool = False, **measurement: object
) -> Path:
    """Write the study into `folder` (<gpu>/<workload>) and return it. measurement: more of the setup's."""
    gpu = {"kind": kind, "name": "Toy <1>", "slug": folder.parent.name, "spec": {"cap_w": 100}, "model": "toy model 1"}
    if forecast:
        gpu |= {"forecast": True}
    if kind == "nvml":
        gpu |= {"uuid": "GPU-1a2b3c4d", "driver": "580.1", "power_limit_mw": 700000}
    workload = {"name": folder.name, "model": "gpt3-xl", "batch": 40}
    targets = {"kernel": {name: {"launches_per_iteration": 2} for name in KERNELS}, "pass": {"forward": []}}
    path = setup.store(
        str(folder / "setup"), gpu, workload, targets, {"warmup_s": 25, "window_s": 5, "seed": 7} | measurement
    )
    digest = Path(path).stem
    _profile(folder, gpu, workload | {"setup": digest, "kernels": KERNELS})
    _schedules(folder, digest)
    for name, rows in tables(fresh).items():
        _csv(folder / f"tables/{name}.csv", rows)
    for name in FIGURES:
        (folder / "figures").mkdir(exist_ok=True)
        Image.new("RGBA", (700, 500), (200, 220, 240, 255)).save(folder / f"figures/{name}.png")
    for name in KERNELS:
        for pair, verdict in (("auto-auto", "ok"), ("1470-auto", "throttled")):
            record(folder / f"measurements/kernel/{name}/{pair}/r0.json", digest, kind, verdict)
    if fresh:
        point = {"verdict": "ok"}
        comparisons = [{"target": name, "repeat": 0, "session": "fresh-0", "points": [point] * 4} for name in KERNELS]
        _json(
            folder / "measurements/validation/repeat-0.json",
            {"run": {"setup": digest}, "device": {"kind": kind}, "comparisons": comparisons},
        )
    return folder


def record(path: Path, digest: str, kind: str, verdict: str) -> None:
    """What a page reads of a record."""
    run = {"setup": digest, "campaign": "sweep"}
    if kind == "nvml":
        run |= {"started_utc": "2026-02-03T04:05:06+00:00", "host": "node1"}
    device = {"kind": kind, "uuid": "GPU-1a2b3c4d", "driver": "580.1"}
    _json(path, {"run": run, "device": device, "verdict": verdict})


def tables(fresh: bool = True) -> dict:
    """{name: [row]} of the CSVs."""
    found = {
        "kernel_clocks": [
            {
                "row": about["row"],
                "section": about["section"],
                "name": about["name"],
                "id": name,
                "mem_mhz": "auto",
                "core_mhz": core,
                "time_change_percent": time,
                "energy_change_percent": energy,
            }
            for (name, about), core, time, energy in zip(
                KERNELS.items(), (1470, "auto", 1470), (1.23456, 0.0, -0.004), (-20.5, 0.0, -9.25)
            )
        ],
        "strategies": [
            {"granularity": "kernel", "scope": "-", "objective": "auto", "slack_percent": None, "waste_j": 165.1234}
            | {"time_change_percent": 0.0, "energy_change_percent": 0.0, "status": "measured"},
            {"granularity": "kernel", "scope": "global", "objective": "waste", "slack_percent": 0.0, "waste_j": 0.0}
            | {"time_change_percent": -5.6e-06, "energy_change_percent": -7.666, "status": "optimal"},
        ],
        "relaxed": [
            {
                "slack_percent": slack / 2,
                "scope": "global",
                "time_change_percent": slack / 2,
                "energy_change_percent": -slack,
            }
            for slack in range(40)
        ],
        "tensor_energy": [
            {
                "tensor_energy_pj_per_flop": value,
                "is_default": value == 2.2,
                "kernel_fresh_energy_change_percent": change,
            }
            for value, change in ((1.0, -7.2), (2.2, -7.23), (3.6, -7.64))
        ],
        "deployable": [
            {"way": way, "latency_ms": latency, "core_stall_ms": stall, "mem_stall_ms": stall}
            | {"time_change_percent": -0.05, "energy_change_percent": energy, "gap_points": 0.01, "changes": changes}
            | {"is_default": default}
            for way, latency, stall, energy, changes, default in (
                ("each kernel, changes free", 0, 0, -7.6, 800, True),
                ("one pair for the run", None, None, -0.25, 0, True),
                ("a pair for each pass", 1, 0.1, -0.75, 2, True),
                ("a pair for each pass", 10, 0.1, -0.5, 2, True),
                ("launch by launch, asked ahead", 1, 0.1, -4.25, 400, True),
                ("launch by launch, asked ahead", 10, 0.1, -3.125, 200, True),
                ("launch by launch, asked ahead", 50, 0.1, -1.5, 50, True),
                ("launch by launch, asked ahead", 10, 1.0, -0.8, 20, False),
            )
        ],
        "headline_band": [
            {"level": "kernel", "varied": varied, "default_energy_change_percent": -7.23}
            | {"low_energy_change_percent": low, "high_energy_change_percent": high}
            for varied, low, high in (("all together", -7.64, -7.2), ("highest clock at auto", -7.3, -7.2))
        ],
        "omitted_pairs": [{"core_mhz": "auto", "mem_mhz": 405, "reason": "it folds"}],
        "claims": [
            {"number": 1, "claim": "Clocks per pass save <about> 2 %", "source": "abstract", "paper": "2 %"}
            | {"ours": "1 %", "verdict": "differs", "why": "because & so"}
        ],
    }
    for name, column in (("data_parallelism", "batch"), ("tensor_parallelism", "tensor_parallel")):
        bounds = {"change": -7.25, "low": -7.375, "high": -7.125}
        found[name] = [
            {column: 40, "claimed_energy_change_percent": -7.666, "auto_time_s": 6.379123}
            | {f"energy_{bound}_percent": value for bound, value in bounds.items()},
            {column: 20, "claimed_energy_change_percent": None, "auto_time_s": 0.1654}
            | {f"energy_{bound}_percent": None for bound in bounds},
        ]
    if fresh:
        found["validation"] = [
            {"quantity": "time", "claimed_change_percent": -5.6e-06, "fresh_change_percent": 0.236}
            | {
                "fresh_low_percent": 0.159,
                "fresh_high_percent": 0.313,
                "optimism_pp": 0.236,
                "repeats": 10,
                "interval": "over 10 sessions",
            }
            | {"verdict": "breaks its limit"},
            {"quantity": "energy", "claimed_change_percent": -7.666, "fresh_change_percent": -7.226}
            | {
                "fresh_low_percent": -7.373,
                "fresh_high_percent": -7.078,
                "optimism_pp": 0.44,
                "repeats": 10,
                "interval": "over 10 sessions",
            }
            | {"verdict": None},
        ]
        found["headline"] = [headline_row(STRICT, found["validation"])]
    found["chosen_clocks"] = found["kernel_clocks"]
    assert {*found, *NOT_MADE, "validation", "headline"} >= SHIPPED, "a table that no page was tried with"
    return found


def headline_row(name: str, rows: list[dict]) -> dict:
    """What was found by measuring a schedule again, as table headline has it. rows: as table validation has it."""
    row: dict = {"schedule": name, "slack_percent": 0.0}
    for each in rows:
        quantity = each["quantity"]
        row |= {f"claimed_{quantity}_change_percent": each["claimed_change_percent"]}
        row |= {f"fresh_{quantity}_{of}_percent": each[f"fresh_{of}_percent"] for of in ("change", "low", "high")}
        row |= {f"{quantity}_optimism_pp": each["optimism_pp"]}
    about = {name: rows[0][name] for name in ("repeats", "interval", "verdict")}
    return row | about | {"status": "optimal"}


def _profile(folder: Path, gpu: dict, workload: dict) -> None:
    rows = [
        dict.fromkeys(COLUMNS)
        | {"study": study, "target": target, "launches_per_iteration": 2, "n": 1, "verdict": verdict}
        | {"core_mhz": core, "is_baseline": core is None, "time_s": 0.01, "energy_j": energy}
        | {"reached_core_mhz": core and core - 30, "reached_mem_mhz": 9251.0}
        for study, names in (("kernel", list(KERNELS)), ("pass", ["forward"]))
        for target in names
        for core, energy, verdict in (
            (None, 3.0 if target == "forward_gemm" else 1.0, "ok"),
            (1470.0, 0.9, "throttled"),
        )
    ]
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    about = {key: gpu[key] for key in ("kind", "name", "slug", "forecast") if key in gpu}
    for name in ("profile", "published"):
        write_profile(folder / f"{name}.parquet", columns, about, workload, ["core_mhz", "mem_mhz"])


def _schedules(folder: Path, digest: str) -> None:
    chosen = {"forward_gemm": 1470, "forward_gelu": "auto", "backward_gemm": 1470}
    for name, cores in (
        (STRICT, chosen),
        (PASS_STRICT, {"forward": 1470}),
        ("kernel-single-waste-slack0", dict.fromkeys(chosen, 1470)),
    ):
        targets = {target: {"core_mhz": core, "mem_mhz": "auto"} for target, core in cores.items()}
        schedule = whole_schedule(
            workload={"setup": digest},
            granularity=name.partition("-")[0],
            baseline_time=6.371338,
            baseline_energy=2153.138,
            time_change_percent=-5.6e-06,
            energy_change_percent=-7.666,
            targets=targets,
        )
        for each in (name, published(name)):
            _json(folder / f"schedules/{each}.json", schedule)


def _json(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def _csv(path: Path, rows: list) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "gpu"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"gpu": "simulated Toy <1>"} for row in rows)
