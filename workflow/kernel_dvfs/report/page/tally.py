"""What the records of a study say of themselves: how many there are, their verdicts, who measured them and when.

Reads every record, but only its labels: a broken one is counted and named, it does not stop the page.
"""

from collections import Counter, namedtuple
from pathlib import Path

from kernel_dvfs.files import read_json

Tally = namedtuple("Tally", "groups broken setups devices started hosts")
Tally.__doc__ = """groups: [Group]. broken: paths that could not be read. setups: Counter of setup digests of the sweep.
devices: {field: values found}, of the records' device. started: (first, last) UTC start of a record, of real GPUs.
hosts: names of machines."""
Group = namedtuple("Group", "name records points verdicts")
Group.__doc__ = "records: files; points: measurements in them; verdicts: Counter over points."

VERDICTS = ("ok", "throttled", "not_reached", "unstable", "disturbed", "counter", "unsupported")
# sweeps first, and numbers by their size
_ORDER = ("kernel", "pass", "validation", "batch", "tp")
_SWEEPS = {"kernel": "sweep of the kernels", "pass": "sweep of the passes"}
_DEVICE = ("uuid", "driver", "cuda", "vbios", "nvml", "power_limit_mw", "ecc", "persistence", "energy_scope")


def tally(folder) -> Tally:
    """The tally of `<folder>/measurements`; empty where there are none."""
    found, files = {}, Counter()
    broken, setups, started, hosts = [], Counter(), [], set()
    devices = {field: [] for field in _DEVICE}
    root = Path(folder, "measurements")
    for path in sorted(root.rglob("*.json"), key=lambda path: _rank(path.relative_to(root).parts)):
        if path.name.startswith("."):
            continue
        try:
            record = read_json(path)
            verdicts = _verdicts(record)
            run, device = record["run"], record["device"]
            digest = run["setup"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            broken.append(path)
            continue
        top = path.relative_to(root).parts[0]
        group = _group(top, run)
        files[group] += 1
        found.setdefault(group, Counter()).update(verdicts)
        if top in _SWEEPS:
            setups[digest] += 1
        started += [run["started_utc"]] if "started_utc" in run else []
        hosts |= {run["host"]} if "host" in run else set()
        for field, values in devices.items():
            if device.get(field) is not None and device[field] not in values:
                values.append(device[field])
    groups = [Group(name, files[name], sum(verdicts.values()), verdicts) for name, verdicts in found.items()]
    return Tally(groups, broken, setups, devices, (min(started), max(started)) if started else None, sorted(hosts))


def _rank(parts: tuple) -> tuple:
    study, _, value = parts[0].partition("-")
    place = _ORDER.index(study) if study in _ORDER else len(_ORDER)
    return place, int(value) if value.isdecimal() else 0, parts


def _group(top: str, run: dict) -> str:
    if top in _SWEEPS:
        again = str(run.get("campaign", "")).startswith("remeasure")
        return f"{_SWEEPS[top]}, measured again" if again else _SWEEPS[top]
    if top.startswith("validation"):
        return "fresh repeats"
    study, _, value = top.partition("-")
    return {"batch": f"batch {value}", "tp": f"tensor-parallel degree {value}"}.get(study, top)


def _verdicts(record: dict) -> list:
    if "comparisons" in record:
        return [point["verdict"] for each in record["comparisons"] for point in each["points"]]
    return [record["verdict"]]
