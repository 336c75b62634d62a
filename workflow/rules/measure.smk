# Every target at every clock pair: one job, one record. Then the study by clock, and the profiles of both.

RECORD = FOLDER + "/measurements/{kind}/{target}/{core}-{mem}/r{repeat}.json"


def swept_by(known):
    """The records of the sweep: kernel x core clock x memory clock, auto as often as `auto_repeats` says."""
    records = [
        RECORD.format(kind=kind, target=target, core=core, mem=mem, repeat=repeat)
        for kind, targets in (("kernel", known.kernels), ("pass", known.passes))
        for core, mem in known.pairs
        for target in targets
        for repeat in range(known.repeats_at(core, mem))
    ]
    if STUDY.is_captured_here:
        missing = sum(not Path(record).is_file() for record in records)
        expect("measure", missing, planning.planned_s(known, missing))
    return records


sweep = asked(swept_by)


rule setup:
    input:
        asked(lambda study: [file.path for file in study.setups()]),


if STUDY.is_captured_here:

    if not STUDY.setup:
        expect("capture", 1, planning.planned_s(STUDY))

    # A checkpoint: which kernels the step has is known when it has run. It leaves the record as it is where the step has
    # still the same kernels, so that an edited comment measures nothing again.
    checkpoint capture:
        input:
            STUDY.step.file,
            # what reads its graph
            built(loads.record(STUDY.is_step)),
        output:
            # first what a run that needs the record asks for
            touch(ended(STUDY.step_record)),
            record=update(STUDY.step_record),
        log:
            "logs/" + FOLDER + "/capture.log",
        localrule: True
        resources:
            gpu=GPUS,
        params:
            step=STUDY.step.called,
            name=STUDY.step.name.removeprefix("step-"),
            uuid=STUDY.uuid,
            share="--share" if STUDY.options["share"] else "",
        shell:
            "CUDA_VISIBLE_DEVICES={params.uuid:q} {RUN} capture {params.step:q} --name {params.name:q}"
            " {params.share} --log {log:q} -o {output.record:q}"


# What a measurement job needs and nothing else, named by its content: the same content is the same file and job.
rule write_setup:
    output:
        "{folder}/setup/{digest}.json",
    wildcard_constraints:
        folder="results/.+",
        digest="[0-9a-f]+",
    localrule: True
    threads: 0
    params:
        text=lambda wildcards: planning.text_of(
            f"{wildcards.folder}/setup/{wildcards.digest}.json",
            [*as_known().setups(), *(own for plan in BESIDE.values() for own in plan.setups())],
        ),
    run:
        files.write_text(output[0], params.text)


if STUDY.is_real:

    # What the sweep of a real GPU needs otherwise: a rule a clock pair, in descending priority, so that all targets are
    # measured at one pair before the clocks change to the next. (validate.smk has a rule a session, for the same reason.)
    for rank, ((core, mem), repeat) in enumerate(STUDY.points):

        rule:
            name:
                f"measure_{core}_{mem}_r{repeat}"
            input:
                kernels,
                gpu=SETUP,
            output:
                expand(RECORD, core=core, mem=mem, repeat=repeat, allow_missing=True),
            log:
                f"logs/{FOLDER}/measure/{{kind}}-{{target}}-{core}-{mem}-r{repeat}.log",
            priority: len(STUDY.points) - rank
            localrule: True
            resources:
                gpu=GPUS,
                slurm_extra=gpu_freq((core, mem)) if STUDY.clocks == "external" else "",
            params:
                clocks=f"{core},{mem}",
                campaign=campaign.of_repeat((core, mem), repeat, STUDY.options["auto_repeats"]),
                repeat=repeat,
                session=f"--session {STUDY.session_of(rank)}" if STUDY.session_of(rank) else "",
            shell:
                "{RUN_LIGHT} measure --gpu {input.gpu:q} --target {wildcards.kind}/{wildcards.target} "
                "--clocks {params.clocks} --campaign {params.campaign} --repeat {params.repeat} {params.session} "
                "--log {log:q} -o {output:q}"

else:

    # A point takes a few ms and no core of its own, and runs within Snakemake's process.
    rule measure:
        input:
            gpu=SETUP,
        output:
            RECORD,
        log:
            "logs/" + FOLDER + "/measure/{kind}-{target}-{core}-{mem}-r{repeat}.log",
        localrule: True
        threads: 0
        params:
            campaign=lambda wildcards: campaign.of_repeat(
                (wildcards.core, wildcards.mem), int(wildcards.repeat), STUDY.options["auto_repeats"]
            ),
        run:
            what, pair = f"{wildcards.kind}/{wildcards.target}", pair_of(f"{wildcards.core},{wildcards.mem}")
            within(log, jobs.measure, input.gpu, what, pair, params.campaign, int(wildcards.repeat), output[0])


if STUDY.is_by_clock:

    # Visits pair after pair of clocks until it is known which to choose, and shown what they keep. Its file lists the
    # checksum of every record that it read, so that it cannot outlive them.
    rule by_clock:
        input:
            kernels,
            gpu=SETUP,
        output:
            touch(ended(STUDY.by_clock_file)),
            # kept where a study fails: what follows from the last one still holds until another has ended
            found=update(STUDY.by_clock_file),
        log:
            "logs/" + FOLDER + "/by-clock.log",
        # the answer comes before the paper's sweep
        priority: 1_000_000
        localrule: STUDY.is_real
        threads: 0
        resources:
            gpu=GPUS,
        params:
            options=json.dumps(STUDY.by_clock_options()),
            # another one where a visit is gone or has changed; not from `input`, since Snakemake does not look at what
            # follows from inputs for a change
            token=lambda wildcards: STUDY.by_clock_token(),
            kernels=f"--kernels {KERNELS}" if STUDY.is_real else "",
        shell:
            "{RUN_ALONE} measure by-clock --gpu {input.gpu:q} --records {FOLDER:q}/measurements --options {params.options:q} "
            "--token={params.token} {params.kernels} --log {log:q} -o {output.found:q}"


if STUDY.is_by_clock:

    # A checkpoint, so that what follows is looked at again when it is there, and runs only if it holds other bytes.
    checkpoint pool_visits:
        input:
            kernels,
            rules.by_clock.output,
            gpu=SETUP,
        output:
            STUDY.profile,
        log:
            "logs/" + FOLDER + "/profile.log",
        localrule: True
        threads: 0
        run:
            in_turn(log, jobs.pool_visits, input.gpu, f"{FOLDER}/measurements", STUDY.by_clock_file, output[0])


if STUDY.is_measured:

    # likewise
    checkpoint aggregate:
        input:
            # so that both checkpoints are there from the start. Records come when a step is captured, and rest on the
            # kernels: were these not asked for before, Snakemake would never look whether a record is older
            kernels,
            sweep,
            gpu=SETUP,
        output:
            STUDY.published_profile,
            [] if STUDY.is_by_clock else STUDY.profile,
        log:
            "logs/" + FOLDER + "/published.log",
        threads: 0
        params:
            pairs=clocks_argument(STUDY.pairs),
            auto_repeats=STUDY.options["auto_repeats"],
            pooled="" if STUDY.is_by_clock else f"-o {STUDY.profile}",
        shell:
            "{RUN_ALONE} measure aggregate --gpu {input.gpu:q} --records {FOLDER:q}/measurements --pairs={params.pairs} "
            "--auto-repeats {params.auto_repeats} --log {log:q} --published {output[0]:q} {params.pooled}"

else:

    rule import_table:
        input:
            STUDY.table,
        output:
            STUDY.profile,
        log:
            "logs/" + FOLDER + "/profile.log",
        params:
            options=planning.import_options(config["gpu"]),
        shell:
            # notices belong in front of the user as well as in the log
            "{RUN} import {input:q} {params.options} -o {output:q} > {log:q} 2>&1 && cat {log:q} >&2"


if STUDY.is_step and STUDY.is_real:

    # the step's record with what each kernel took at auto: a forecast on a simulated GPU is held to it
    rule measured_step:
        input:
            profile=profile,
            step=STUDY.step_record,
        output:
            STUDY.measured_step,
        log:
            "logs/" + FOLDER + "/measured-step.log",
        shell:
            "{RUN} measure step {input.step:q} --profile {input.profile:q} --log {log:q} -o {output:q}"


# every record, so that a deleted one is noticed although there is a profile
rule measurements:
    input:
        # asked for from the start, too, so that a plan shows it
        ended(STUDY.step_record) if STUDY.is_captured_here else [],
        kernels,
        sweep,
        rules.by_clock.output if STUDY.is_by_clock else [],


rule profile:
    input:
        rules.measurements.input,
        STUDY.profile,
        STUDY.measured_step if STUDY.is_step and STUDY.is_real else [],
