"""A study of a simulated GPU: its spec, the workload on it, other sizes of it, and the map of its headline."""

from __future__ import annotations

import hashlib
import json

from kernel_dvfs import layout
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.clocks import sweep_pairs
from kernel_dvfs.gpu.forecast import forecast_of_step, is_power_modelled
from kernel_dvfs.layout import subject
from kernel_dvfs.measurement import campaign
from kernel_dvfs.measurement.simulated import MODEL
from kernel_dvfs.plan import shared
from kernel_dvfs.plan.asked import PlannedFile, Study, Variant
from kernel_dvfs.plan.step import step_source
from kernel_dvfs.workload.step import read as read_step
from kernel_dvfs.workload.traffic import dense_gemm_byte
from kernel_dvfs.workload.workload import Workload, of_model


def simulated(config: dict, results: str) -> Study:
    """A study of a simulated GPU. Raises InputError for an unknown one, or what it or the model cannot."""
    overrides = config["gpu_overrides"]
    spec = gpu_spec.resolve(config["gpu"], overrides)
    slug = f"sim-{spec['id']}"
    if overrides:
        slug += "-" + hashlib.sha256(json.dumps(overrides, sort_keys=True).encode()).hexdigest()[:6]
    pairs, omitted = sweep_pairs(spec["clocks"], config["grid"])
    step = step_source(config["workload"])
    if step and not step.is_recorded:
        raise InputError(
            f"workload = 'step:{step.called}': a simulated GPU runs no step; capture it where there is a GPU "
            f"(kernel-dvfs capture {step.called} -o step.json), then workload=step:step.json gives a forecast"
        )
    own_pj = spec["energy_pj"]["tensor_bf16_flop"]
    energies_pj, degrees, batches = config["tensor_energy_pj"], [], []
    if step:
        # a forecast is held to what was measured of this step; other sizes of it are other steps
        energies_pj = []
    else:
        degrees, batches = shared.degrees_of(config), config["data_parallel_batches"]
        if energies_pj is None:
            energies_pj = gpu_spec.tensor_energy_range_pj(config["gpu"])
    gpu = {"kind": "simulated", "slug": slug, "name": spec["name"], "model": MODEL}
    if step:
        gpu |= {"forecast": True}
        gpu |= {"power_modelled": True} if is_power_modelled(read_step(step.file)) else {}

    def planned(spec: dict, options: dict) -> tuple[PlannedFile, Workload]:
        if step:
            workload = forecast_of_step(read_step(step.file), step.name, spec)
        else:
            workload = of_model(
                options, spec["sm_count"], spec["threads_per_sm"], lambda rows: dense_gemm_byte(rows, spec)
            )
        folder = f"{results}/{slug}/{shared.workload_folder(step, config)}"
        return shared.setup_file(folder, gpu | {"spec": spec}, workload, shared.protocol(config, "simulated")), workload

    variants = {}
    for name, study, value, changed in shared.other_sizes(config, batches, degrees):
        file, workload = planned(spec, config | changed)
        variants[name] = Variant(file, study, value, list(workload.kernels))
    for value in energies_pj:
        if value != own_pj:
            energy = overrides.get("energy_pj", {}) | {"tensor_bf16_flop": value}
            file, workload = planned(gpu_spec.resolve(config["gpu"], overrides | {"energy_pj": energy}), config)
            name = f"tensor-energy-{layout.shortest(value)}"
            variants[name] = Variant(file, "tensor-energy", value, list(workload.kernels))
    file, workload = planned(spec, config)
    return Study(
        kind="simulated",
        gpu=slug,
        workload=workload.name,
        folder=f"{results}/{slug}/{workload.name}",
        options=config,
        schedules=shared.schedule_names(
            shared.granularities_of(workload), config["slack_percent"], shared.weights_of(config, "simulated")
        ),
        title=subject(gpu),
        setup=file,
        kernels=tuple(workload.kernels),
        passes=tuple(workload.passes),
        chosen_passes=workload.has_passes,
        pairs=tuple(pairs),
        omitted=tuple(omitted),
        points=tuple(campaign.ordered_points(pairs, config["auto_repeats"], config["seed"])),
        variants=variants,
        batches=tuple(batches),
        degrees=tuple(degrees),
        tensor_energy_pj=own_pj,
        tensor_energies_pj=tuple(energies_pj),
        step=step,
        step_record=step.file if step else "",
        headline_axes={} if step else _headline_axes(config, spec),
    )


def _headline_axes(config: dict, spec: dict) -> dict[str, list[float]]:
    """The values on each axis of the headline's map (layout.HEADLINE_AXES); {} where none is asked for."""
    asked = config["headline_map"]
    if asked is None:
        return {}
    name, own_mhz = config["gpu"], spec["clocks"]["auto_core_mhz"]
    between = gpu_spec.auto_core_range_mhz(name)
    known_mhz = [own_mhz] if between is None else sorted({*between, own_mhz})
    energies_pj = asked["tensor_energy_pj"] or gpu_spec.tensor_energy_range_pj(name)
    return {
        "tensor_energy_pj": _spread(energies_pj, asked["points"][0]),
        "gemm_traffic": _spread(asked["gemm_traffic"], asked["points"][1]),
        "auto_core_mhz": asked["auto_core_mhz"] or known_mhz,
    }


def _spread(ends: list[float], points: int) -> list[float]:
    """`points` evenly spaced values from one end to the other."""
    least, most = ends
    return [round(least + (most - least) * number / (points - 1), 4) for number in range(points)]
