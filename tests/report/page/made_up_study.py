"""A small made-up study on disk, with all that a page shows and with names that must be escaped."""

import json
from pathlib import Path

from PIL import Image
from whole_schedule import whole_schedule

from kernel_dvfs.layout import DEPLOYABLE, PASS_STRICT, STRICT, published
from kernel_dvfs.measurement import setup
from kernel_dvfs.profile.store import COLUMNS, write_profile
from kernel_dvfs.registry import outputs
from kernel_dvfs.table_file import write_rows

KERNELS = {
    "forward_gemm": {"row": 1, "section": "Forward", "name": "GEMM <b>&'\"", "kind": "gemm"},
    "forward_gelu": {"row": 2, "section": "Forward", "name": "GELU", "kind": "elementwise"},
    "backward_gemm": {"row": 10, "section": "Backward", "name": "GEMM", "kind": "gemm"},
}
# {kernel: {core clock, None at auto: (time of a launch, s; energy, J; verdict)}}; twice each, 6.371338 s and 2153.138 J
POINTS = {
    "forward_gemm": {None: (1.1, 400.0, "ok"), 1470.0: (1.1092, 317.0, "throttled"), 1700.0: (1.1013, 371.5, "ok")},
    "forward_gelu": {None: (0.9, 276.569, "ok"), 1470.0: (0.9711, 181.25, "ok"), 1700.0: (0.8991, 251.75, "ok")},
    "backward_gemm": {
        None: (1.185669, 400.0, "ok"),
        1470.0: (1.1769, 363.0, "throttled"),
        1700.0: (1.1849, 381.0, "ok"),
    },
}
SHIPPED = {name for name, each in outputs("gpu").of("table").items() if each.workload != "step"}
FIGURES = {name: each for name, each in outputs("gpu").of("figure").items() if each.workload != "step"}
NOT_MADE = ("baseline", "passes", "locking")


def made_up(
    folder: Path,
    kind: str = "simulated",
    fresh: bool = True,
    forecast: bool = False,
    more: dict | None = None,
    **measurement: object,
) -> Path:
    """Write the study into `folder` (<gpu>/<workload>) and return it. more: of the workload. measurement: more of the
    setup's."""
    gpu = {"kind": kind, "name": "Toy <1>", "slug": folder.parent.name, "spec": {"cap_w": 100}, "model": "toy model 1"}
    if forecast:
        gpu |= {"forecast": True}
    if kind == "nvml":
        gpu |= {"uuid": "GPU-1a2b3c4d", "driver": "580.1", "power_limit_mw": 700000}
    workload = {"name": folder.name, "model": "gpt3-xl", "batch": 40, "sections": [["forward", 0], ["backward", 4]]}
    workload |= more or {}
    targets = {"kernel": {name: {"launches_per_iteration": 2} for name in KERNELS}, "pass": {"forward": []}}
    path = setup.store(
        str(folder / "setup"), gpu, workload, targets, {"warmup_s": 25, "window_s": 5, "seed": 7} | measurement
    )
    digest = Path(path).stem
    _profile(folder, gpu, workload | {"setup": digest, "kernels": KERNELS})
    _schedules(folder, digest)
    for name, rows in tables(fresh).items():
        write_rows(folder / f"tables/{name}.json", [row | {"gpu": "simulated Toy <1>"} for row in rows])
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


_USUAL = {"slack_percent": 0.0, "latency_ms": 10.0, "mem_latency_ms": 20.0, "core_stall_ms": 0.1, "mem_stall_ms": 0.1}
_USUAL |= {"time_change_percent": -0.05, "energy_change_percent": -4.9, "is_default": True, "costs": "assumed"}
# what the study has chosen to set today
WAYS = [
    _USUAL
    | {"way": "one pair for the run", "changes": 0, "clocks": "1700,auto", "again": [[-0.2, -3.25], [-0.05, -4.25]]}
    | {"latency_ms": None, "energy_change_percent": -3.6},
    _USUAL
    | {"way": "a pair for each pass", "changes": 2, "clocks": "forward 1700,auto; backward 1470,auto"}
    | {"again": [[0.04, -4.5], [0.02, -5.5]]},
    _USUAL
    | {"way": "launch by launch, asked ahead", "changes": 4, "clocks": "schedules/iteration-10ms.json"}
    | {"again": [[0.03, -6.0], [0.05, -6.5]], "energy_change_percent": -6.4},
]
# the study's choice with 1 % more time, measured again
RELAXED = {
    "schedule": "kernel-global-waste-slack1",
    "slack_percent": 1.0,
    "repeats": 10,
    "interval": "over 10 sessions",
}
RELAXED |= {"claimed_time_change_percent": 0.97, "claimed_energy_change_percent": -12.06, "verdict": "keeps its limit"}
RELAXED |= {"fresh_time_change_percent": 0.93, "fresh_time_low_percent": 0.88, "fresh_time_high_percent": 0.98}
RELAXED |= {
    "fresh_energy_change_percent": -11.64,
    "fresh_energy_low_percent": -11.9,
    "fresh_energy_high_percent": -11.4,
}
RELAXED |= {"time_optimism_pp": -0.04, "energy_optimism_pp": 0.42, "status": "optimal"}


def record(path: Path, digest: str, kind: str, verdict: str) -> None:
    """What a page reads of a record."""
    run = {"setup": digest, "campaign": "sweep"}
    if kind == "nvml":
        run |= {"started_utc": "2026-02-03T04:05:06+00:00", "host": "node1"}
    device = {"kind": kind, "uuid": "GPU-1a2b3c4d", "driver": "580.1"}
    _json(path, {"run": run, "device": device, "verdict": verdict})


def tables(fresh: bool = True) -> dict:
    """{name: [row]} of the tables."""
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
            {"way": way, "latency_ms": latency, "mem_latency_ms": latency and 2 * latency}
            | {"core_stall_ms": stall, "mem_stall_ms": stall and 0.1}
            | {"claimed_time_change_percent": -0.05, "fresh_time_change_percent": time}
            | {"claimed_energy_change_percent": -4.9, "fresh_energy_change_percent": energy}
            | {"gap_points": 0.01, "changes": changes, "is_default": default, "costs": latency and "assumed"}
            for way, latency, stall, energy, time, changes, default in (
                ("each kernel, changes free", 0, 0, -7.6, 0.02, 800, True),
                ("one pair for the run", None, None, -0.25, -0.125, 0, True),
                ("a pair for each pass", 10, 0.1, -0.5, 0.03, 2, True),
                ("launch by launch, asked ahead", 10, 0.1, -3.125, 0.04, 200, True),
                ("launch by launch, asked ahead", 10, 1.0, -0.875, 0.05, 20, False),
            )
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
        found["headline"] = [headline_row(STRICT, found["validation"]), RELAXED]
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
        | {"core_mhz": core, "is_baseline": core is None, "time_s": time_s, "energy_j": energy_j}
        | {"reached_core_mhz": core and core - 30 * (verdict == "throttled"), "reached_mem_mhz": 9251.0}
        for study, points in (("kernel", POINTS), ("pass", {"forward": POINTS["forward_gemm"]}))
        for target, own in points.items()
        for core, (time_s, energy_j, verdict) in own.items()
    ]
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    about = {key: gpu[key] for key in ("kind", "name", "slug", "forecast") if key in gpu}
    for name in ("profile", "published"):
        write_profile(folder / f"{name}.parquet", columns, about, workload, ["core_mhz", "mem_mhz"])


def _schedules(folder: Path, digest: str) -> None:
    chosen = {"forward_gemm": 1470, "forward_gelu": "auto", "backward_gemm": 1470}
    for name, cores, slack, energy, time in (
        (STRICT, chosen, 0, -7.666, -5.6e-06),
        ("kernel-global-waste-slack1", dict.fromkeys(chosen, 1470) | {"forward_gemm": 1700}, 1, -12.06, 0.97),
        (PASS_STRICT, {"forward": 1470}, 0, -7.666, -5.6e-06),
        ("kernel-single-waste-slack0", dict.fromkeys(chosen, 1470), 0, -7.666, -5.6e-06),
    ):
        targets = {target: {"core_mhz": core, "mem_mhz": "auto"} for target, core in cores.items()}
        schedule = whole_schedule(
            workload={"setup": digest},
            granularity=name.partition("-")[0],
            slack_percent=slack,
            baseline_time=6.371338,
            baseline_energy=2153.138,
            time_change_percent=time,
            energy_change_percent=energy,
            targets=targets,
        )
        for each in (name, published(name)):
            _json(folder / f"schedules/{each}.json", schedule)
    _json(folder / "schedules/deployable.json", {"schema": DEPLOYABLE, "workload": {"setup": digest}, "rows": WAYS})


def _json(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
