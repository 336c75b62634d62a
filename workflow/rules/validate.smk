# The schedules of the headline measured again; the strict one also at other batches and degrees. A variant is the same
# workload at another batch, degree or tensor-core energy, swept and chosen again.


# each repeat in a session of its own: what a session does to all its repeats, none of them can show
rule validate:
    input:
        kernels,
        gpu=setup,
        # a folder that names no schedule is the strict one's
        schedule=after_profile(lambda wildcards: STUDY.schedule(wildcards.schedule.removeprefix("-") or layout.STRICT)),
    output:
        FOLDER + "/measurements/validation{schedule}/repeat-{repeat}.json",
    log:
        "logs/" + FOLDER + "/validate{schedule}-{repeat}.log",
    wildcard_constraints:
        schedule="|-(kernel|pass)-global-.+",
    group:
        "validate"
    localrule: STUDY.is_real
    resources:
        gpu=GPUS,
    shell:
        "{RUN_LIGHT} measure compare --gpu {input.gpu:q} --schedule {input.schedule:q} --new-session "
        "--first {wildcards.repeat} --last {wildcards.repeat} --log {log:q} -o {output:q}"


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
            FOLDER + "/measurements/{variant}/" + part + "{target}.json",
        log:
            "logs/" + FOLDER + "/carry-over/{variant}/" + part + "{target}.log",
        wildcard_constraints:
            variant=r"(batch|tp)-\d+",
        priority: -number
        group:
            "carry"
        localrule: STUDY.is_real
        resources:
            gpu=GPUS,
        params:
            repeats=f"--first {first} --last {last}",
            session=f"--session repeats-{number}" if part else "",
        shell:
            "{RUN_LIGHT} measure compare --gpu {input.gpu:q} --schedule {input.schedule:q} "
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
                FOLDER + "/measurements/locked-{way}/" + part + "{target}.json",
            log:
                "logs/" + FOLDER + "/locked-{way}/" + part + "{target}.log",
            wildcard_constraints:
                way="core|mem|both",
            priority: -number
            localrule: True
            resources:
                gpu=GPUS,
            params:
                clocks=lambda wildcards: STUDY.contracts[wildcards.way],
                repeats=f"--first {first} --last {last}",
                session=f"--session repeats-{number}" if part else "",
            shell:
                "{RUN_LIGHT} measure compare --gpu {input.gpu:q} --clocks {params.clocks} "
                "--target {wildcards.target} {params.repeats} {params.session} --log {log:q} -o {output:q}"


VARIANT = FOLDER + "/variants/{variant}"


rule sweep_variant:
    input:
        gpu=setup_of,
    output:
        VARIANT + "/profile.parquet",
    log:
        "logs/" + FOLDER + "/sweep-{variant}.log",
    params:
        pairs=clocks_argument(STUDY.pairs),
        auto_repeats=STUDY.options["auto_repeats"],
        # passes are chosen again only where the headline is repeated
        studies=lambda wildcards: (
            "kernel pass" if wildcards.variant in STUDY.variants_of("tensor-energy") else "kernel"
        ),
    shell:
        "{RUN} measure sweep --gpu {input.gpu:q} --pairs {params.pairs} --studies {params.studies} "
        "--auto-repeats {params.auto_repeats} --log {log:q} -o {output:q}"


rule choose_variant:
    input:
        rules.sweep_variant.output,
    output:
        VARIANT + "/schedule{of}.json",
    log:
        "logs/" + FOLDER + "/choose-{variant}{of}.log",
    wildcard_constraints:
        of="|-pass",
    params:
        level=lambda wildcards: wildcards.of.removeprefix("-") or "kernel",
        ties=config["ties"],
    shell:
        "{RUN} choose {input:q} --granularity {params.level} --scope global --objective waste --slack 0 "
        "--ties {params.ties} --log {log:q} -o {output:q}"


rule validate_variant:
    input:
        gpu=setup_of,
        schedule=VARIANT + "/schedule.json",
    output:
        VARIANT + "/fresh.json",
    log:
        "logs/" + FOLDER + "/validate-{variant}.log",
    params:
        last=STUDY.repeats - 1,
    shell:
        "{RUN_LIGHT} measure compare --gpu {input.gpu:q} --schedule {input.schedule:q} --last {params.last} "
        "--log {log:q} -o {output:q}"
