"""Pool measured points into a profile: one row per target and pair, repeats weighted alike, in s and J."""

import math
from functools import partial

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import AUTO, BASELINE
from kernel_dvfs.measurement.campaign import Bench, of_repeat
from kernel_dvfs.measurement.request import merged, sweep
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.profile.records import Records
from kernel_dvfs.profile.store import COLUMNS, write_profile
from kernel_dvfs.profile.uncertainty import standard_errors


def from_records(
    setup, folder: str, requests: list, auto_repeats: int, output: str, checksums: dict | None = None
) -> None:
    """The profile of the records under `folder` (kernel/ and pass/) that `requests` name.

    checksums: {path below the folder: SHA-256} of exactly these records, as a search read them; None: not checked.
    Raises InputError naming a bad record.
    """
    records = Records(setup, folder, checksums)
    rows = columns(setup, requests, auto_repeats, records.points)
    unread = sorted(set(checksums or ()) - set(records.checksums))
    if unread:
        raise InputError(
            f"record {folder}/{unread[0]}: the search read it, but it is not pooled; give the clock pairs and repeats "
            "that the search was given"
        )
    _write(setup, rows, output)


def from_bench(setup, pairs: list, auto_repeats: int, output: str, studies=("kernel", "pass")) -> None:
    """The profile of a sweep measured here and now; the same numbers as from records of the same setup."""

    def points(target):
        bench = Bench(setup, target)
        return lambda pair, repeat: bench.point(pair, of_repeat(pair, repeat, auto_repeats), repeat)

    _write(setup, columns(setup, sweep(setup, pairs, auto_repeats, studies), auto_repeats, points), output)


def columns(setup, requests: list, auto_repeats: int, points) -> dict:
    """{column: list} of a profile, one row a target and pair, in the order of the setup's targets and of the requests.

    points(target)(pair, repeat): the point, as in a record; None where it was left out.
    """
    rows, groups = {name: [] for name in COLUMNS}, []
    asked = merged(requests)
    for study in setup.targets:
        for name, about in setup.targets[study].items():
            about = about if study == "kernel" else {"launches_per_iteration": 1, "replicate_group": None}
            point = points(Target(study, name)) if (study, name) in asked else None
            for pair, repeats in asked.get((study, name), {}).items():
                points_of_pair = ((of_repeat(pair, each, auto_repeats), point(pair, each)) for each in repeats)
                measured = _usable([each for each in points_of_pair if each[1] is not None])
                if not measured:
                    continue
                groups.append(((study, name), measured))
                row = _row(pair, [each for _, each in measured]) | {
                    "study": study,
                    "target": name,
                    "launches_per_iteration": about["launches_per_iteration"],
                    "replicate_group": about["replicate_group"],
                }
                for column, values in row.items():
                    rows[column].append(values)
    rows["time_se_s"] = _errors(groups, "time_us", 1e-6)
    rows["energy_se_j"] = _errors(groups, "energy_mj", 1e-3)
    return rows


def _usable(measured: list) -> list:
    """Without repeats that say nothing, unless there are no others: then the row says so."""
    return [each for each in measured if each[1]["verdict"] not in UNUSABLE] or measured


def _errors(groups: list, field: str, unit: float) -> list:
    """Standard errors of the rows' means, None where nothing tells. groups: per row (target, [(campaign, point)])."""
    if not groups:
        return []
    places = {}
    target, cell, n, mean, squares = [], [], [], [], []
    for number, (name, measured) in enumerate(groups):
        by_campaign = {}
        for campaign, point in measured:
            by_campaign.setdefault(campaign, []).append(point["summary"][field] * unit)
        for values in by_campaign.values():
            target.append(places.setdefault(name, len(places)))
            cell.append(number)
            n.append(len(values))
            mean.append(_average(values))
            squares.append(math.fsum((value - mean[-1]) ** 2 for value in values))
    errors = standard_errors(target, cell, n, mean, squares)
    return [None if math.isnan(error) else error for error in errors.tolist()]


def _write(setup, rows: dict, output: str) -> None:
    gpu = {key: setup.gpu[key] for key in ("kind", "name", "slug")}
    workload = setup.workload | {"setup": setup.digest, "kernels": _labels(setup.targets["kernel"])}
    write_profile(output, rows, gpu, workload, ["core_mhz", "mem_mhz"])


def _labels(kernels: dict) -> dict:
    """What a report calls each kernel."""
    return {name: {key: about[key] for key in ("row", "section", "name", "kind")} for name, about in kernels.items()}


def _row(pair, records: list) -> dict:
    core_mhz, mem_mhz = (None if clock == AUTO else float(clock) for clock in pair)
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
