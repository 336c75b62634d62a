"""From a checked configuration to what the serving study is made of: its folder, its profile, how that is made.

Names only: like `study`, it knows no Snakemake.
"""

from collections import namedtuple
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.serving.models import check_degree, served

ServingPlan = namedtuple("ServingPlan", "folder profile made_here arguments")
ServingPlan.__doc__ = """folder: of the study. profile: path of the serving profile. made_here: whether it is simulated
here; arguments: then of `kernel-dvfs serving-profile`, as one text."""

# keys that make a profile, beside gpu and model, with their options of serving-profile
_OPTIONS = {
    "degrees": "--tp",
    "core_mhz": "--core-mhz",
    "requests": "--requests",
    "max_batch": "--max-batch",
    "chunk_tokens": "--chunk-tokens",
}


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
    return ServingPlan(f"{results}/serving/table-{path.stem}", str(path), False, "")


def _simulated(asked: dict, seed: int, results: str) -> ServingPlan:
    spec = gpu_spec.resolve(asked["gpu"])
    clocks = spec["clocks"]["core_mhz"]
    outside = [mhz for mhz in asked["core_mhz"] if not clocks["lowest"] <= mhz <= clocks["highest"]]
    if outside:
        raise InputError(f"core_mhz = {outside[0]} is not possible; allowed: {clocks['lowest']} to {clocks['highest']}")
    for degree in asked["degrees"]:
        check_degree(served(asked["model"]), degree)
    if asked["chunk_tokens"] <= asked["max_batch"]:
        raise InputError(
            f"chunk_tokens = {asked['chunk_tokens']} is not possible; allowed: above max_batch ({asked['max_batch']})"
        )
    folder = f"{results}/serving/sim-{spec['id']}-{asked['model']}"
    words = [f"--gpu {asked['gpu']} --model {asked['model']} --seed {seed}"]
    words += [f"{option} {_text(asked[key])}" for key, option in _OPTIONS.items()]
    words += ["--kernel-level"] if asked["kernel_level"] else []
    return ServingPlan(folder, f"{folder}/profile.csv", True, " ".join(words))


def _text(value) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
