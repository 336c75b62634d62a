"""From a checked configuration to what the serving study is made of: its folder, its profile, how that is made.

Names only: like `study`, it knows no Snakemake.
"""

from collections import namedtuple
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.serving.models import check_degree, served
from kernel_dvfs.serving.resharding import check_degrees

ServingPlan = namedtuple("ServingPlan", "folder profile made_here instance grid")
ServingPlan.__doc__ = """folder: of the study. profile: path of the serving profile. made_here: it is simulated here;
then instance: options of `kernel-dvfs serving-profile` and `serving-table1`, grid: those of the former alone, each as
one text."""

# keys that say what is simulated, and what grid of it, with their options
_INSTANCE = {
    "gpu": "--gpu",
    "model": "--model",
    "requests": "--requests",
    "max_batch": "--max-batch",
    "chunk_tokens": "--chunk-tokens",
}
_GRID = {"degrees": "--tp", "core_mhz": "--core-mhz"}


def plan_serving(config: dict, results: str = "results") -> ServingPlan:
    """The serving study of `config` (checked by config.check). Raises InputError for what the schema cannot say."""
    asked = config["serving"]
    try:
        return _given(asked, results) if asked["profile"] else _simulated(asked, config["seed"], results)
    except InputError as error:
        raise InputError(f"config: serving: {str(error).removeprefix('serving: ')}") from None


def _given(asked: dict, results: str) -> ServingPlan:
    path = Path(asked["profile"])
    if not path.is_file():
        raise InputError(f"profile = '{path}': no such file; allowed: a serving profile (.csv), or null")
    return ServingPlan(f"{results}/serving/table-{path.stem}", str(path), False, "", "")


def _simulated(asked: dict, seed: int, results: str) -> ServingPlan:
    spec = gpu_spec.resolve(asked["gpu"])
    clocks = spec["clocks"]["core_mhz"]
    outside = [mhz for mhz in asked["core_mhz"] if not clocks["lowest"] <= mhz <= clocks["highest"]]
    if outside:
        raise InputError(f"core_mhz = {outside[0]} is not possible; allowed: {clocks['lowest']} to {clocks['highest']}")
    for degree in asked["degrees"]:
        check_degree(served(asked["model"]), degree)
    check_degrees(asked["degrees"])
    if asked["chunk_tokens"] <= asked["max_batch"]:
        raise InputError(
            f"chunk_tokens = {asked['chunk_tokens']} is not possible; allowed: above max_batch ({asked['max_batch']})"
        )
    folder = f"{results}/serving/sim-{spec['id']}-{asked['model']}"
    instance = f"{_text(asked, _INSTANCE)} --seed {seed}"
    grid = _text(asked, _GRID) + (" --kernel-level" if asked["kernel_level"] else "")
    return ServingPlan(folder, f"{folder}/profile.csv", True, instance, grid)


def _text(asked: dict, options: dict) -> str:
    values = {key: asked[key] if isinstance(asked[key], list) else [asked[key]] for key in options}
    return " ".join(f"{option} {','.join(map(str, values[key]))}" for key, option in options.items())
