"""A study on a Slurm cluster: CPU stages are jobs of Snakemake's, a real GPU is measured through one job that holds it.

The workflow's side: what the profile says, which GPU the study is of, what must hold before it starts.
"""

import os

from kernel_dvfs import slurm
from kernel_dvfs.environment import SLURM

# default resources of the profile: options of sbatch
GPU, CPU = "slurm_gpu", "slurm_cpu"


def options(default_resources) -> dict:
    """{GPU: options, CPU: options} where a profile names them, else {}; tells the jobs that measure.

    default_resources: Snakemake's, a mapping or None.
    """
    # as written, since Snakemake works them out for rules only; quoted where they come from the command line
    found = {
        key: str(default_resources[key].raw).strip("'\"") for key in (GPU, CPU) if key in (default_resources or {})
    }
    if found.get(GPU):
        os.environ[SLURM] = found[GPU]
    return found


def find_gpu(slurm_options: dict, gpu) -> None:
    """Have the GPU of a study looked at by a job of its own where the cluster's are not known yet. Raises InputError.

    gpu: as configured. From here on every process of this run means the same specimen.
    """
    if GPU not in slurm_options or not isinstance(gpu, str) or gpu.partition(":")[0] != "nvml":
        return
    from kernel_dvfs.gpu.nvml.known import SPECIMEN, Unknown, known_facts
    from kernel_dvfs.measurement.real.specimen import elsewhere

    which = gpu.partition(":")[2]
    try:
        uuid = known_facts(which, "results")["uuid"]
    except Unknown:
        uuid = elsewhere(slurm_options[GPU], "results")
    os.environ[SPECIMEN] = uuid


def check(slurm_options: dict, measures: bool) -> None:
    """Ask Slurm what it thinks of the profile's options before anything is submitted. Raises InputError.

    measures: whether a GPU is needed.
    """
    for key, text in slurm_options.items():
        if measures or key != GPU:
            slurm.check(text, key)
    if slurm_options:
        os.makedirs(slurm.LOGS, exist_ok=True)
