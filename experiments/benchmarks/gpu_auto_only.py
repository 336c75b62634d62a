"""Measure every kernel and pass of an iteration on a real GPU at its default clocks, as the workflow's jobs do, and
account for the time of each.

Sets nothing on the GPU (`clocks: auto-only`). One process a target, each the command line of a Snakemake job, through
the measuring process that they share; Snakemake itself (about 10 ms a job) is left out. Everything is saved after each
target; where `--limit-s` runs out the session ends cleanly, and `--resume` goes on with what it left, also on another
machine with the same model of GPU.

    python experiments/benchmarks/gpu_auto_only.py -o out                        # beside results/native/cuda
    python experiments/benchmarks/gpu_auto_only.py -o out2 --resume out --limit-s 540

Writes into the folder: NAME.csv (a row a kernel; `kernel-dvfs import` reads it), NAME.json (passes beside the sums of
their kernels, overhead, noise, counter), devices.txt, gemm_algorithms.json, records.jsonl (what --resume reads).
"""

import argparse
import csv
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from kernel_dvfs.measurement.real import gemm_algorithms
from kernel_dvfs.measurement.real.gpu import PARTS
from kernel_dvfs.measurement.real.loads import library_sha256
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.plan.config import check, load
from kernel_dvfs.plan.study import plan
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import parse_json, write_json, write_text

# fmt: off
COLUMNS = (
    "gpu", "kernel", "core_mhz", "mem_mhz", "is_auto", "time_us", "time_sd_us", "energy_mj", "energy_sd_mj", "power_w",
    "sm_mhz", "mem_clock_mhz", "temp_c", "power_cap_share",
    "counter_period_ms", "windows", "window_s", "launches", "by_graph", "algorithm",
    "date", "driver", "cuda", "library_sha256",
    "verdict", "first_temp_c", "counter_read_ms",
    "wall_s", "windows_s", "warm_up_s", "choosing_s", "overhead_s", "overhead_percent",
)
# fmt: on
WORKFLOW = Path(__file__).resolve().parents[2] / "workflow"
# what is the measurement itself; all else of a job's time is overhead
MEASURING = ("windows", "warm_up")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="nvml", help="nvml, nvml:UUID or nvml:INDEX (default: nvml)")
    parser.add_argument("--config", default="config.yaml", help="workload and protocol (default: config.yaml)")
    parser.add_argument("--only", default="", help="targets whose name contains this")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="start no target that would end later")
    parser.add_argument("--resume", help="folder of an earlier call to go on from")
    parser.add_argument("--name", default="auto_only", help="of the .csv and .json (default: auto_only)")
    parser.add_argument("-o", "--output", required=True, help="folder for the results")
    return parser.parse_args()


def main() -> None:
    begin_s = time.monotonic()
    options = arguments()
    config = load(options.config) | {"gpu": options.gpu, "clocks": "auto-only"}
    check(config, str(WORKFLOW / "schemas" / "config.schema.yaml"))
    library_sha256()  # refuses, with the remedy, where nothing is built
    study = plan(config)
    setup = read(study.setup.write())
    output = Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    devices(output, options.config)
    algorithms = Path(gemm_algorithms.path_of(study.gpu))
    results = resumed(options.resume, setup, algorithms) if options.resume else []
    targets = [f"kernel/{name}" for name in study.kernels] + [f"pass/{name}" for name in study.passes]
    targets = [target for target in targets if options.only in target]
    done = {result["target"] for result in results}
    save(output, options.name, setup, results, targets, algorithms)
    try:
        for target in targets:
            if target in done:
                continue
            if time.monotonic() - begin_s + longest_s(setup.measurement) > options.limit_s:
                break
            results.append(job(study, target))
            save(output, options.name, setup, results, targets, algorithms)
            print(line(results[-1]), flush=True)
    finally:
        subprocess.run(
            [sys.executable, "-m", "kernel_dvfs", "measure", "serve", "--gpu", study.setup.path, "--stop"],
            env=environment(),
        )
    left = len(targets) - len({result["target"] for result in results} & set(targets))
    print(f"{len(targets) - left} of {len(targets)} targets in {output}", file=sys.stderr)
    if left:
        print(f"the limit of {options.limit_s:g} s is reached; go on with --resume {output}", file=sys.stderr)


def longest_s(measurement: dict) -> float:
    """What a target may take: its protocol, half as much again for more windows and heating, and a start."""
    return 1.5 * (measurement["warmup_s"] + measurement["windows"] * measurement["window_s"]) + 10


def environment() -> dict:
    path = os.pathsep.join(filter(None, [str(WORKFLOW), os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PYTHONPATH": path}


def devices(output: Path, config: str) -> None:
    """What `kernel-dvfs devices` says, on the terminal and in a file."""
    command = [sys.executable, "-m", "kernel_dvfs", "devices", "--config", config]
    said = subprocess.run(command, env=environment(), check=True, capture_output=True, text=True).stdout
    print(said, end="", flush=True)
    write_text(output / "devices.txt", said)


def job(study, target: str) -> dict:
    """Measure one target: the command line of rule `measure_auto_auto_r0`."""
    record = Path(f"{study.folder}/measurements/{target}/auto-auto/r0.json")
    record.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-S",
        "-c",
        "from kernel_dvfs.__main__ import run; raise SystemExit(run())",
        "measure",
        "--gpu",
        study.setup.path,
    ]
    command += ["--target", target, "--clocks", "auto,auto", "--repeat", "0", "-o", str(record)]
    start_s = time.monotonic()
    failed = subprocess.run(command, env=environment()).returncode
    wall_s = time.monotonic() - start_s
    if failed:
        raise InputError(f"{target}: not measured, see above; what was measured before is saved")
    return {"target": target, "wall_s": wall_s, "record": parse_json(record.read_text())}


def resumed(folder: str, setup, algorithms: Path) -> list:
    """The results of an earlier call, and its GEMM algorithms put where the measuring process looks for them.

    Raises InputError where it measured something else, or on another model of GPU.
    """
    source = Path(folder)
    try:
        results = [parse_json(each) for each in (source / "records.jsonl").read_text().splitlines()]
        session = parse_json((source / "session.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"--resume {folder}: {error}; name the folder of an earlier call") from None
    for what, own in identity(setup).items():
        if session.get(what) != own:
            raise InputError(f"--resume {folder}: another {what} than now; measure it all anew")
    kept = source / algorithms.name
    if kept.is_file() and not algorithms.exists():
        algorithms.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept, algorithms)
    return results


def identity(setup) -> dict:
    """What two calls must have in common."""
    gpu = {key: setup.gpu[key] for key in ("name", "driver", "power_limit_mw")}
    return {"GPU": gpu, "workload": setup.workload, "protocol": setup.measurement, "library": library_sha256()}


def save(output: Path, name: str, setup, results: list, targets: list, algorithms: Path) -> None:
    """Everything, whole or not at all, file by file."""
    write_text(output / "records.jsonl", "".join(json.dumps(each) + "\n" for each in results))
    write_json(output / "session.json", identity(setup))
    if algorithms.is_file():
        write_text(output / algorithms.name, algorithms.read_text())
    lines = io.StringIO()
    table = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(row(each, setup) for each in results if each["target"].startswith("kernel/"))
    write_text(output / f"{name}.csv", lines.getvalue())
    if results:
        write_json(output / f"{name}.json", summary(setup, results, targets))


def account(result: dict) -> dict:
    """Seconds of a job by part; overhead: neither in windows (edges included) nor kernel warm-up."""
    spent = result["record"]["run"]["spent_s"]
    overhead_s = result["wall_s"] - sum(spent[part] for part in MEASURING)
    return {f"{part}_s": spent[part] for part in PARTS} | {"wall_s": result["wall_s"], "overhead_s": overhead_s}


def cap_share(record: dict) -> float:
    """Share of the windows in which the power cap was at work, by the driver's own count."""
    windows = record["windows"]
    return sum(window["cap_ns"] for window in windows) / sum(1e9 * window["duration_s"] for window in windows)


def row(result: dict, setup) -> dict:
    """One line of the table: the columns that its readers know, then verdict and time account."""
    record, spent = result["record"], account(result)
    device, total, windows = record["device"], record["summary"], record["windows"]
    instance = record["kernel"]["instance"]
    return {
        "gpu": device["name"],
        "kernel": record["kernel"]["name"],
        "core_mhz": "auto",
        "mem_mhz": "auto",
        "is_auto": 1,
        "time_us": round(total["time_us"], 4),
        "time_sd_us": "" if total["time_sd_us"] is None else round(total["time_sd_us"], 4),
        "energy_mj": round(total["energy_mj"], 5),
        "energy_sd_mj": "" if total["energy_sd_mj"] is None else round(total["energy_sd_mj"], 5),
        "power_w": round(total["power_mw"] / 1000, 2),
        "sm_mhz": record["reached"]["core_mhz"],
        "mem_clock_mhz": record["reached"]["mem_mhz"],
        "temp_c": windows[-1]["temp_c"][1],
        "power_cap_share": round(cap_share(record), 3),
        "counter_period_ms": round(device["counter_period_ms"], 2),
        "windows": total["n"],
        "window_s": setup.measurement["window_s"],
        "launches": sum(window["launches"] for window in windows),
        "by_graph": int(bool(record["kernel"]["by_graph"])),
        "algorithm": instance.split("=")[1].split()[0] if instance.startswith("cublaslt ") else "",
        "date": record["run"]["started_utc"][:10],
        "driver": device["driver"],
        "cuda": device["cuda"],
        "library_sha256": identity(setup)["library"][:12],
        "verdict": record["verdict"],
        "first_temp_c": windows[0]["temp_c"][0],
        "counter_read_ms": round(device["counter_read_ms"], 2),
        "overhead_percent": round(100 * spent["overhead_s"] / spent["wall_s"], 2),
    } | {key: round(spent[key], 3) for key in COLUMNS if key in spent}


def summary(setup, results: list, targets: list) -> dict:
    """What the session was, in one page."""
    records = [each["record"] for each in results]
    by_target = {each["target"]: each["record"] for each in results}
    return identity(setup) | {
        "gpus": sorted({record["device"]["uuid"] for record in records}),
        "device": records[-1]["device"],
        "first_utc": min(record["run"]["started_utc"] for record in records),
        "last_utc": max(record["run"]["started_utc"] for record in records),
        "targets": {"measured": len(by_target), "of": len(targets)},
        "overhead": overhead(results),
        "verdicts": dict(Counter(record["verdict"] for record in records)),
        "under_power_cap": sum(cap_share(record) > 0.5 for record in records),
        "power_cap_share": {target: round(cap_share(record), 3) for target, record in by_target.items()},
        "counter_period_ms": spread([record["device"]["counter_period_ms"] for record in records]),
        "counter_read_ms": spread([record["device"]["counter_read_ms"] for record in records]),
        "window_noise_percent": {
            name: spread([relative_sd_percent(record["summary"], name) for record in records])
            for name in ("time_us", "energy_mj")
        },
        "iteration": of_kernels(setup, by_target, launches(setup)),
        "passes": {name: beside(setup, by_target, name) for name in setup.targets["pass"]},
    }


def overhead(results: list) -> dict:
    """Time of all jobs by part, and the overhead as a share of it. The first job starts the measuring process."""
    accounts = [account(each) for each in results]
    total = {key: sum(each[key] for each in accounts) for key in accounts[0]}
    wall_s, lost_s = total["wall_s"], total["overhead_s"]
    shares = [100 * each["overhead_s"] / each["wall_s"] for each in accounts]
    worst = max(range(len(results)), key=lambda place: shares[place])
    return {
        "percent": round(100 * lost_s / wall_s, 2),
        "percent_without_choosing": round(100 * (lost_s - total["choosing_s"]) / (wall_s - total["choosing_s"]), 2),
        "per_target_percent": spread(shares),
        "targets_above_10_percent": sum(share > 10 for share in shares),
        "worst_target": results[worst]["target"],
        "spent_s": {key: round(seconds, 2) for key, seconds in total.items()},
    }


def launches(setup) -> dict:
    return {name: about["launches_per_iteration"] for name, about in setup.targets["kernel"].items()}


def of_kernels(setup, by_target: dict, counts: dict):
    """Sums over kernels as they were measured alone; None while one is missing."""
    if any(f"kernel/{name}" not in by_target for name in counts):
        return None
    totals = {name: by_target[f"kernel/{name}"]["summary"] for name in counts}
    energy_j = {name: 1e-3 * count * totals[name]["energy_mj"] for name, count in counts.items()}
    kinds = setup.targets["kernel"]
    gemm_j = sum(energy for name, energy in energy_j.items() if kinds[name]["kind"] == "gemm")
    return {
        "time_ms": sum(1e-3 * count * totals[name]["time_us"] for name, count in counts.items()),
        "energy_j": sum(energy_j.values()),
        "gemm_energy_share": gemm_j / sum(energy_j.values()),
    }


def beside(setup, by_target: dict, name: str):
    """A pass as it ran, and the sum of its kernels."""
    record = by_target.get(f"pass/{name}")
    if record is None:
        return None
    counts = Counter()
    for kernel, count in setup.targets["pass"][name]:
        counts[kernel] += count
    total, alone = record["summary"], of_kernels(setup, by_target, counts)
    ran = {"time_ms": 1e-3 * total["time_us"], "energy_j": 1e-3 * total["energy_mj"]}
    found = {"measured": ran | {"sm_mhz": record["reached"]["core_mhz"]}, "sum_of_kernels": alone}
    if alone:
        found["difference_percent"] = {key: 100 * (ran[key] / alone[key] - 1) for key in ran}
    return found | {"verdict": record["verdict"]}


def relative_sd_percent(total: dict, name: str) -> float:
    return 100 * (total[f"{name[:-3]}_sd_{name[-2:]}"] or 0) / total[name]


def spread(values: list) -> dict:
    return {
        "least": round(min(values), 4),
        "median": round(statistics.median(values), 4),
        "most": round(max(values), 4),
    }


def line(result: dict) -> str:
    record, spent = result["record"], account(result)
    total, celsius = record["summary"], record["windows"][-1]["temp_c"][1]
    return (
        f"{result['target']:40} {total['time_us']:11.2f} us {total['energy_mj']:11.3f} mJ "
        f"{total['power_mw'] / 1000:6.1f} W {record['reached']['core_mhz']:7.1f} MHz {celsius} C "
        f"cap {cap_share(record):4.2f} {record['verdict']:9} {spent['wall_s']:6.1f} s, "
        f"overhead {100 * spent['overhead_s'] / spent['wall_s']:4.1f} %"
    )


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
