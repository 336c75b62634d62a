"""From a checked configuration to the replay of a trace through the serving systems: its folder, options, parts.

Names only: like `study`, it knows no Snakemake.
"""

from collections import namedtuple
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.serving.settings import DEFAULTS

ReplayPlan = namedtuple("ReplayPlan", "folder trace options experiments tables figures")
ReplayPlan.__doc__ = """folder: of the study. trace: path of a given one, None for the shipped. options: of
`kernel-dvfs serving-study`. experiments, tables, figures: their names."""

# keys of the study that are no settings of a cluster
_OWN = ("gpu", "model", "kernel_level", "trace", "trace_sha256", "slo_scale", "loads_tps", "loads_span_s", "week")
_PRICES = ("usd_per_server_hour", "usd_per_kwh", "co2_g_per_kwh")
# table or figure -> the experiment it shows
TABLES = {
    "savings": "systems",
    "classes": "systems",
    "split": "systems",
    "cost": "systems",
    "events": "systems",
    "paper": "systems",
    "loads": "loads",
    "misprediction": "misprediction",
    "sweeps": "sweeps",
    "hierarchy": "hierarchy",
    "bound": "hierarchy",
    "week": "week",
}
FIGURES = {
    "savings": "systems",
    "power": "systems",
    "knobs": "systems",
    "split": "systems",
    "loads": "loads",
    "misprediction": "misprediction",
    "sweeps": "sweeps",
    "week": "week",
}
# what a table draws on beside its own experiment
ALSO = {"paper": ("loads",), "bound": ("systems",)}


def shown_by(shown: dict, name: str, folder: str) -> list:
    """Paths of the experiments that a table or figure of `shown` (TABLES, FIGURES) draws on."""
    return [f"{folder}/experiments/{each}.json" for each in (shown[name], *ALSO.get(name, ()))]


def plan_replay(config: dict, serving) -> ReplayPlan:
    """The replay of `config` (checked by config.check) on the profile of a ServingPlan. Raises InputError."""
    asked = config["serving"]
    trace = asked["trace"]
    if trace is not None and not Path(trace).is_file():
        raise InputError(
            f"config: serving: trace = '{trace}': no such file; allowed: a trace (.csv; docs/serving.md says where to "
            "get the Azure 2023 ones), or null for the shipped synthetic hour"
        )
    if asked["servers"] < asked["pools"]:
        raise InputError(
            f"config: serving: servers = {asked['servers']} is not possible; allowed: at least one for each of the "
            f"{asked['pools']} pools"
        )
    settings = {key: asked[key] for key in DEFAULTS if key in asked} | {"seed": config["seed"]}
    # a setting that is not the default makes another study
    changed = [key for key, value in settings.items() if key not in ("servers", "pools") and value != DEFAULTS[key]]
    name = f"{Path(trace).stem if trace else 'synthetic-hour'}-s{asked['servers']}-p{asked['pools']}"
    name += "".join(f"-{key}-{settings[key]}" for key in sorted(changed))
    options = {key: asked[key] for key in _OWN} | {key: asked[key] for key in _PRICES}
    options |= {"profile": serving.profile, "settings": settings}
    experiments = ["systems", "misprediction", "sweeps", "hierarchy"]
    experiments += ["loads"] if asked["loads_tps"] else []
    experiments += ["week"] if asked["week"] else []

    def made(names):
        return [name for name, own in names.items() if {own, *ALSO.get(name, ())} <= set(experiments)]

    return ReplayPlan(f"{serving.folder}/{name}", trace, options, experiments, made(TABLES), made(FIGURES))
