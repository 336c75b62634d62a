# Every target at every clock pair: one job, one record. Then what a search asks for, and the profile of all of it.


rule setup:
    input:
        asked(lambda study: [file.path for file in study.setups()]),


if STUDY.is_captured_here:

    # A checkpoint: which kernels the step has is known when it has run. It leaves the record as it is where the step has
    # still the same kernels, so that an edited comment measures nothing again.
    checkpoint capture:
        input:
            STUDY.step.file,
            # what reads its graph
            loads.record(STUDY.is_step),
        output:
            update(STUDY.step_record),
        log:
            f"logs/{FOLDER}/capture.log",
        localrule: True
        conda:
            "../../envs/pipeline.yaml"
        resources:
            gpu=GPUS,
        params:
            step=STUDY.step.called,
            name=STUDY.step.name.removeprefix("step-"),
            uuid=STUDY.uuid,
        shell:
            "CUDA_VISIBLE_DEVICES={params.uuid:q} "
            f"{RUN} capture {{params.step:q}} --name {{params.name:q}} -o {{output:q}} {LOGGED}"


# What a measurement job needs and nothing else, named by its content: the same content is the same file and job.
rule write_setup:
    output:
        "{folder}/setup/{digest}.json",
    log:
        "logs/{folder}/setup-{digest}.log",
    wildcard_constraints:
        folder="results/.+",
        digest="[0-9a-f]+",
    localrule: True
    conda:
        "../../envs/pipeline.yaml"
    params:
        text=planned_text,
    shell:
        "printf %s {params.text:q} > {output:q} 2> {log:q}"


if STUDY.is_real:

    # a rule a clock pair, in descending priority: all targets at one pair, then the next
    for rank, (pair, repeat) in enumerate(STUDY.points):

        rule:
            name:
                f"measure_{pair[0]}_{pair[1]}_r{repeat}"
            input:
                kernels,
                gpu=setup,
            output:
                f"{FOLDER}/measurements/{{study}}/{{target}}/{label(pair)}/r{repeat}.json",
            log:
                f"logs/{FOLDER}/measure/{{study}}-{{target}}-{label(pair)}-r{repeat}.log",
            wildcard_constraints:
                study="kernel|pass",
                target=r"\w+",
            priority: len(STUDY.points) - rank
            localrule: True
            conda:
                "../../envs/pipeline.yaml"
            resources:
                gpu=GPUS,
                slurm_extra=slurm.gpu_freq(pair) if STUDY.clocks == "external" else "",
            params:
                clocks=",".join(map(str, pair)),
                campaign=campaign.of_repeat(pair, repeat, STUDY.options["auto_repeats"]),
                repeat=repeat,
                session=f"--session {STUDY.session_of(rank)}" if STUDY.session_of(rank) else "",
            shell:
                f"{RUN_LIGHT} measure --gpu {{input.gpu:q}} --target {{wildcards.study}}/{{wildcards.target}} "
                "--clocks {params.clocks} --campaign {params.campaign} --repeat {params.repeat} {params.session} --log {log:q} "
                "-o {output:q}"

else:

    rule measure:
        input:
            gpu=setup,
        output:
            f"{FOLDER}/measurements/{{study}}/{{target}}/{{core}}-{{mem}}/r{{repeat}}.json",
        log:
            f"logs/{FOLDER}/measure/{{study}}-{{target}}-{{core}}-{{mem}}-r{{repeat}}.log",
        wildcard_constraints:
            study="kernel|pass",
            target=r"\w+",
            core=r"auto|\d+",
            mem=r"auto|\d+",
            repeat=r"\d+",
        group:
            "sweep"
        conda:
            "../../envs/pipeline.yaml"
        params:
            campaign=campaign_of,
        shell:
            f"{RUN_LIGHT} measure --gpu {{input.gpu:q}} --target {{wildcards.study}}/{{wildcards.target}} "
            "--clocks {wildcards.core},{wildcards.mem} --campaign {params.campaign} --repeat {wildcards.repeat} "
            "--log {log:q} -o {output:q}"


if STUDY.is_searched:

    # Asks what is measured next, measures it, asks again, until nothing is asked for. Its file lists the checksum of
    # every record that it read, so that it cannot outlive them.
    rule search:
        input:
            kernels,
            asked(lambda study: study.sweep()),
            gpu=setup,
        output:
            STUDY.search_file,
        log:
            f"logs/{FOLDER}/search.log",
        localrule: STUDY.is_real
        conda:
            "../../envs/pipeline.yaml"
        resources:
            gpu=GPUS,
        params:
            folder=subpath(output[0], parent=True),
            options=json.dumps(STUDY.search_options()),
            # another one where a record that it measured is gone or has changed
            token=STUDY.search_token(),
            kernels=f"--kernels {KERNELS}" if STUDY.is_real else "",
        shell:
            f"{RUN} measure search --gpu {{input.gpu:q}} --records {{params.folder:q}}/measurements "
            f"--options {{params.options:q}} --token={{params.token}} {{params.kernels}} -o {{output:q}} {LOGGED}"


if STUDY.is_measured:

    # A checkpoint, so that what follows is looked at again when it is there, and runs only if it holds other bytes.
    checkpoint pool_records:
        input:
            asked(lambda study: study.sweep()),
            gpu=setup,
            search=rules.search.output if STUDY.is_searched else [],
        output:
            STUDY.profile,
        log:
            f"logs/{FOLDER}/profile.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            folder=subpath(output[0], parent=True),
            pairs=clocks_argument(STUDY.pairs) if STUDY.is_exhaustive else "",
            auto_repeats=STUDY.options["auto_repeats"],
            search=f"--search {STUDY.search_file}" if STUDY.is_searched else "",
        shell:
            f"{RUN} measure pool --gpu {{input.gpu:q}} --records {{params.folder:q}}/measurements --pairs={{params.pairs}} "
            f"--auto-repeats {{params.auto_repeats}} {{params.search}} -o {{output:q}} {LOGGED}"

else:

    rule import_table:
        input:
            STUDY.table,
        output:
            STUDY.profile,
        log:
            f"logs/{FOLDER}/profile.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            options=planning.import_options(config["gpu"]),
        shell:
            f"{RUN} import {{input:q}} {{params.options}} -o {{output:q}} {LOGGED_AND_TOLD}"


if STUDY.is_step and STUDY.is_real:

    # the step's record with what each kernel took at auto: a forecast on a simulated GPU is held to it
    rule measured_step:
        input:
            profile,
            step=STUDY.step_record,
        output:
            STUDY.measured_step,
        log:
            f"logs/{FOLDER}/measured-step.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            profile=STUDY.profile,
        shell:
            f"{RUN} measure step {{input.step:q}} --profile {{params.profile:q}} -o {{output:q}} {LOGGED}"


# every record, so that a deleted one is noticed although there is a profile
rule measurements:
    input:
        asked(lambda study: study.sweep()),
        STUDY.search_file if STUDY.is_searched else [],


rule profile:
    input:
        rules.measurements.input,
        STUDY.profile,
        STUDY.measured_step if STUDY.is_step and STUDY.is_real else [],
