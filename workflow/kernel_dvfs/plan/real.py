"""A study of a real GPU: what may be set there, the workload on it, and what is measured beside the sweep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import BASELINE, EXACT, Pair, check_after, sweep_pairs
from kernel_dvfs.measurement import campaign, target
from kernel_dvfs.plan import shared
from kernel_dvfs.plan.asked import PlannedFile, Study, Variant
from kernel_dvfs.plan.step import step_source
from kernel_dvfs.workload.step import read as read_step
from kernel_dvfs.workload.step_workload import of_step
from kernel_dvfs.workload.workload import Workload, of_model


def real(config: dict, results: str) -> Study:
    """A study of a real GPU. What needs clocks to be set is left out where they are not ours to set."""
    from kernel_dvfs.gpu.nvml.facts import kept_as, known_facts
    from kernel_dvfs.gpu.setters import choice

    known = facts = known_facts(config["gpu"].partition(":")[2], results)
    slug, mode = facts["slug"], config["clocks"]
    if mode != "external":
        check_after(facts["clocks"], config["after"], "config: after")
    if config["grid"]["mem_mhz"] == []:
        # what the study does not lock need not be lockable
        facts = facts | {"clocks": facts["clocks"] | {"mem_mhz": []}}
    omitted: list[tuple[Pair, str]] = []
    both_or_none = mode == "lock" and not choice.can(config["through"]).alone
    if mode != "external":
        choice.check(config["through"], config["after"], ranges=mode == "lock" and config["lock"] != EXACT)
    if both_or_none and not facts["clocks"]["mem_mhz"]:
        raise InputError(
            f"config: through: {config['through']} locks both clocks or none, so grid.mem_mhz must not be empty"
        )
    if mode == "auto-only":
        pairs = [BASELINE]
    elif not facts["clocks"]["core_mhz"]["listed"]:
        raise InputError("the driver lists no clocks for this GPU; measure it with clocks: auto-only")
    else:
        pairs, omitted = sweep_pairs(facts["clocks"], config["grid"])
        if not facts["clocks"]["mem_mhz"]:
            omitted.append((Pair("auto", "all"), "memory clocks are not locked: only the core clock is swept"))
    if both_or_none:
        halves = [pair for pair in pairs if pair != BASELINE and "auto" in pair]
        omitted += [(pair, f"{config['through']} locks both clocks or none") for pair in halves]
        pairs = [pair for pair in pairs if pair not in halves]
    step = step_source(config["workload"])
    if step and config["slurm_gpu"]:
        raise InputError(
            "workload: a captured step is measured on the machine that Snakemake runs on; start it in a job of its "
            "own, without slurm_gpu"
        )
    name = shared.workload_folder(step, config)
    folder = f"{results}/{slug}/{name}"
    # comparisons switch clocks within a job: nobody but us can; other sizes of a captured step are other steps
    is_carried = mode == "lock" and not step
    degrees = shared.degrees_of(config) if is_carried else []
    batches = config["data_parallel_batches"] if is_carried else []
    record = "" if step is None else step.file if step.is_recorded else f"{folder}/step.json"

    def planned(options: dict) -> tuple[PlannedFile, Workload]:
        if step:
            # where clocks are set, kernels and step have the same one, as far as the power cap lets them
            workload = of_step(read_step(record), step.name, record, with_paced=mode == "auto-only")
        else:
            workload = of_model(options, facts["sm_count"], facts["threads_per_sm"])
        return shared.setup_file(folder, {"kind": "nvml"} | facts, workload, shared.protocol(config, "nvml")), workload

    variants = {}
    for variant, kind, value, changed in shared.other_sizes(config, batches, degrees):
        file, workload = planned(config | changed)
        variants[variant] = Variant(file, kind, value, list(workload.kernels))
    study = Study(
        kind="nvml",
        gpu=slug,
        workload=name,
        folder=folder,
        options=config,
        schedules=[],
        title=facts["name"],
        uuid=facts["uuid"],
        facts=PlannedFile(*kept_as(known, results)),
        pairs=tuple(pairs),
        omitted=tuple(omitted),
        points=tuple(campaign.ordered_points(pairs, config["auto_repeats"], config["seed"])),
        variants=variants,
        batches=tuple(batches),
        degrees=tuple(degrees),
        contracts=campaign.lock_contracts(facts["clocks"]) if mode == "lock" else {},
        step=step,
        step_record=record,
    )
    if record and not Path(record).is_file():
        return study  # not captured yet: which targets there are is not known
    file, workload = planned(config)
    granularities = [] if mode == "auto-only" else shared.granularities_of(workload)
    return replace(
        study,
        schedules=shared.schedule_names(granularities, config["slack_percent"], shared.weights_of(config, "nvml")),
        setup=file,
        kernels=tuple(workload.kernels),
        passes=tuple(workload.passes),
        chosen_passes=workload.has_passes,
        locked=tuple(target.representatives(workload.kernels)) if mode == "lock" else (),
    )
