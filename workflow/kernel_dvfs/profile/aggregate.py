"""Pool measured points into a profile: one row per target and pair, repeats weighted alike, in s and J."""

import math
from functools import partial

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import AUTO, BASELINE, label
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.campaign import Bench, repeats
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.profile.store import COLUMNS, write_profile


def from_records(setup, folder: str, pairs: list, auto_repeats: int, output: str) -> None:
    """The profile of the records under `folder` (kernel/ and pass/). Raises InputError naming a bad record."""

    def points(target):
        ran = {}  # {what a record says that it ran: a file that says so}
        for pair in pairs:
            paths = [
                f"{folder}/{target.study}/{target.name}/{label(pair)}/r{repeat}.json"
                for repeat in range(repeats(pair, auto_repeats))
            ]
            if setup.measurement.get("skip_capped"):
                paths = [path for path in paths if not record.read_skipped(path, setup, target, pair)]
            records = [record.read_point(path, setup, target, pair) for path in paths]
            for path, each in zip(paths, records, strict=True):
                ran.setdefault(each["kernel"].get("instance"), path)
            if len(ran) > 1:
                (one, its), (other, others) = list(ran.items())[:2]
                raise InputError(
                    f"{target.study}/{target.name}: {its} ran {one}, but {others} ran {other}, and a profile compares "
                    "clocks, not kernels; delete the records of one of them and run snakemake again"
                )
            if records:
                yield pair, records

    _write(setup, points, output, setup.targets)


def from_bench(setup, pairs: list, auto_repeats: int, output: str, studies=("kernel", "pass")) -> None:
    """The profile of a sweep measured here and now; the same numbers as from records of the same setup."""

    def points(target):
        bench = Bench(setup, target)
        for pair in pairs:
            yield pair, [bench.point(pair, repeat=repeat) for repeat in range(repeats(pair, auto_repeats))]

    _write(setup, points, output, studies)


def _write(setup, points, output: str, studies) -> None:
    columns = {name: [] for name in COLUMNS}
    for study in studies:
        names = setup.targets[study]
        for name in names:
            about = names[name] if study == "kernel" else {"launches_per_iteration": 1, "replicate_group": None}
            for pair, records in points(Target(study, name)):
                row = _row(pair, records) | {
                    "study": study,
                    "target": name,
                    "launches_per_iteration": about["launches_per_iteration"],
                    "replicate_group": about["replicate_group"],
                }
                for column, values in columns.items():
                    values.append(row[column])
    gpu = {key: setup.gpu[key] for key in ("kind", "name", "slug")}
    workload = setup.workload | {"setup": setup.digest, "kernels": _labels(setup.targets["kernel"])}
    write_profile(output, columns, gpu, workload, ["core_mhz", "mem_mhz"])


def _labels(kernels: dict) -> dict:
    """What a report calls each kernel."""
    return {name: {key: about[key] for key in ("row", "section", "name", "kind")} for name, about in kernels.items()}


def _row(pair, records: list) -> dict:
    core_mhz, mem_mhz = (None if clock == AUTO else float(clock) for clock in pair)
    # repeats that say nothing are left out, unless there are no others: then the row says so
    records = [each for each in records if each["verdict"] not in UNUSABLE] or records
    mean = partial(_mean, records)
    odd = [each["verdict"] for each in records if each["verdict"] != "ok"]
    return {
        "core_mhz": core_mhz,
        "mem_mhz": mem_mhz,
        "reached_core_mhz": _average([each["reached"]["core_mhz"] for each in records]),
        "reached_mem_mhz": _average([each["reached"]["mem_mhz"] for each in records]),
        "time_s": mean("time_us") * 1e-6,
        "time_sd_s": _scale(_sd(records, "time_us", "time_sd_us"), 1e-6),
        "energy_j": mean("energy_mj") * 1e-3,
        "energy_sd_j": _scale(_sd(records, "energy_mj", "energy_sd_mj"), 1e-3),
        "n": len(records),
        "verdict": odd[0] if odd else "ok",
        "is_baseline": pair == BASELINE,
    }


def _mean(records: list, field: str) -> float:
    return _average([each["summary"][field] for each in records])


def _average(values: list) -> float:
    return math.fsum(values) / len(values)


def _sd(records: list, field: str, within: str):
    """Scatter of one record: between records where there are several, else the standard error over its windows."""
    values = [each["summary"][field] for each in records]
    if len(values) > 1:
        mean = _average(values)
        return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    summary = records[0]["summary"]
    return None if summary[within] is None else summary[within] / math.sqrt(summary["n"])


def _scale(value, factor: float):
    return None if value is None else value * factor
