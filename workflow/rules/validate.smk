# The schedules of the headline measured again; the strict one also at other batches and degrees. A variant is the same
# workload at another batch, degree or tensor-core energy, swept and chosen again.


rule validate:
    input:
        kernels,
        gpu=setup,
        # a folder that names no schedule is the strict one's
        schedule=after_profile(lambda wildcards: STUDY.schedule(wildcards.schedule.removeprefix("-") or layout.STRICT)),
    output:
        f"{FOLDER}/measurements/validation{{schedule}}/repeat-{{k}}.json",
    log:
        f"logs/{FOLDER}/validate{{schedule}}-{{k}}.log",
    wildcard_constraints:
        schedule="|-(kernel|pass)-global-.+",
        k=r"\d+",
    group:
        "validate"
    localrule: STUDY.is_real
    conda:
        "../../envs/pipeline.yaml"
    resources:
        gpu=GPUS,
    shell:
        # each repeat in a session of its own: what a session does to all its repeats, none of them can show
        f"{RUN_LIGHT} measure compare --gpu {{input.gpu:q}} --schedule {{input.schedule:q}} --new-session "
        "--first {wildcards.k} --last {wildcards.k} --log {log:q} -o {output:q}"


# a rule a session, one after the other; a simulated GPU has one
for number, (part, (first, last)) in enumerate(layout.parts(STUDY.repeats, STUDY.sessions).items()):

    rule:
        name:
            f"carry_over_{number}" if part else "carry_over"
        input:
            kernels,
            gpu=setup_of,
            schedule=after_profile(STUDY.schedule(layout.STRICT)),
        output:
            f"{FOLDER}/measurements/{{variant}}/{part}{{target}}.json",
        log:
            f"logs/{FOLDER}/carry-over/{{variant}}/{part}{{target}}.log",
        wildcard_constraints:
            variant=r"(batch|tp)-\d+",
            target=r"\w+",
        priority: -number
        group:
            "carry"
        localrule: STUDY.is_real
        conda:
            "../../envs/pipeline.yaml"
        resources:
            gpu=GPUS,
        params:
            repeats=f"--first {first} --last {last}",
            session=f"--session repeats-{number}" if part else "",
        shell:
            f"{RUN_LIGHT} measure compare --gpu {{input.gpu:q}} --schedule {{input.schedule:q}} "
            "--target {wildcards.target} {params.repeats} {params.session} --log {log:q} -o {output:q}"


if STUDY.is_real:

    # whether auto is the same as locked at the highest clocks, which every percentage takes it not to be: the core clock
    # alone, the memory clock alone, both
    for number, (part, (first, last)) in enumerate(layout.parts(layout.LOCKING_REPEATS, STUDY.sessions).items()):

        rule:
            name:
                f"compare_locked_{number}" if part else "compare_locked"
            input:
                kernels,
                gpu=setup,
            output:
                f"{FOLDER}/measurements/locked-{{way}}/{part}{{target}}.json",
            log:
                f"logs/{FOLDER}/locked-{{way}}/{part}{{target}}.log",
            wildcard_constraints:
                way="core|mem|both",
                target=r"\w+",
            priority: -number
            localrule: True
            conda:
                "../../envs/pipeline.yaml"
            resources:
                gpu=GPUS,
            params:
                clocks=lambda wildcards: STUDY.contracts[wildcards.way],
                repeats=f"--first {first} --last {last}",
                session=f"--session repeats-{number}" if part else "",
            shell:
                f"{RUN_LIGHT} measure compare --gpu {{input.gpu:q}} --clocks {{params.clocks}} "
                "--target {wildcards.target} {params.repeats} {params.session} --log {log:q} -o {output:q}"


rule sweep_variant:
    input:
        gpu=setup_of,
    output:
        f"{FOLDER}/variants/{{variant}}/profile.parquet",
    log:
        f"logs/{FOLDER}/sweep-{{variant}}.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        pairs=clocks_argument(STUDY.pairs),
        auto_repeats=STUDY.options["auto_repeats"],
        # passes are chosen again only where the headline is repeated
        studies=lambda wildcards: (
            "kernel pass" if wildcards.variant in STUDY.variants_of("tensor-energy") else "kernel"
        ),
    shell:
        f"{RUN} measure sweep --gpu {{input.gpu:q}} --pairs {{params.pairs}} --studies {{params.studies}} "
        f"--auto-repeats {{params.auto_repeats}} -o {{output:q}} {LOGGED}"


rule choose_variant:
    input:
        rules.sweep_variant.output,
    output:
        f"{FOLDER}/variants/{{variant}}/schedule{{granularity}}.json",
    log:
        f"logs/{FOLDER}/choose-{{variant}}{{granularity}}.log",
    wildcard_constraints:
        granularity="|-pass",
    conda:
        "../../envs/pipeline.yaml"
    params:
        granularity=lambda wildcards: wildcards.granularity.removeprefix("-") or "kernel",
        ties=config["ties"],
    shell:
        f"{RUN} choose {{input:q}} --granularity {{params.granularity}} --scope global --objective waste --slack 0 "
        f"--ties {{params.ties}} -o {{output:q}} > /dev/null {LOGGED}"


rule validate_variant:
    input:
        gpu=setup_of,
        schedule=f"{FOLDER}/variants/{{variant}}/schedule.json",
    output:
        f"{FOLDER}/variants/{{variant}}/fresh.json",
    log:
        f"logs/{FOLDER}/validate-{{variant}}.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        last=STUDY.repeats - 1,
    shell:
        f"{RUN_LIGHT} measure compare --gpu {{input.gpu:q}} --schedule {{input.schedule:q}} --last {{params.last}} "
        "--log {log:q} -o {output:q}"
