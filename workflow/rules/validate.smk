# The schedules of the headline measured again, the whole iteration at once; and the strict one as published, kernel by
# kernel as the paper does it, also at other batches and degrees. A variant is the same workload at another batch, degree
# or tensor-core energy, chosen again by one sweep.


def validated(wildcards):
    """The schedule as published that is measured again."""
    return STUDY.schedule(layout.published(wildcards.schedule))


VALIDATION = FOLDER + "/measurements/validation-published-{schedule}/repeat-{repeat}.json"
VALIDATED = r"(kernel|pass)-global-.+"
RELIED_ON = after_profile([STUDY.schedule(name) for name in STUDY.headline])
AGAIN = [f"{FOLDER}/{layout.again(name)}/repeat-{{repeat}}.json" for name in STUDY.headline]
CARRIED_OVER = STUDY.schedule(layout.published(layout.STRICT))
CARRIED = r"(batch|tp)-\d+"


if STUDY.is_real:

    # each repeat in a session of its own: what a session does to all its visits, none of them can show. One session
    # serves all schedules, since they share most of their pairs
    if STUDY.headline:

        rule measure_again:
            input:
                kernels,
                gpu=SETUP,
                schedules=RELIED_ON,
            output:
                AGAIN,
            log:
                "logs/" + FOLDER + "/again-{repeat}.log",
            localrule: True
            resources:
                gpu=GPUS,
            shell:
                "{RUN_LIGHT} measure again --gpu {input.gpu:q} --repeat {wildcards.repeat} "
                "--schedules {input.schedules:q} --log {log:q} -o {output:q}"

    rule validate:
        input:
            kernels,
            gpu=SETUP,
            schedule=after_profile(validated, published_profile),
        output:
            VALIDATION,
        log:
            "logs/" + FOLDER + "/validate-published-{schedule}-{repeat}.log",
        wildcard_constraints:
            schedule=VALIDATED,
        localrule: True
        resources:
            gpu=GPUS,
        shell:
            "{RUN_LIGHT} measure compare --gpu {input.gpu:q} --schedule {input.schedule:q} --new-session "
            "--first {wildcards.repeat} --last {wildcards.repeat} --log {log:q} -o {output:q}"

    # a rule a session, one after the other
    for number, (part, (first, last)) in enumerate(layout.parts(STUDY.repeats, STUDY.sessions).items()):

        rule:
            name:
                f"carry_over_{number}" if part else "carry_over"
            input:
                kernels,
                gpu=setup_of,
                schedule=after_profile(CARRIED_OVER, published_profile),
            output:
                FOLDER + "/measurements/{variant}/" + part + "{target}.json",
            log:
                "logs/" + FOLDER + "/carry-over/{variant}/" + part + "{target}.log",
            wildcard_constraints:
                variant=CARRIED,
            priority: -number
            localrule: True
            resources:
                gpu=GPUS,
            params:
                repeats=f"--first {first} --last {last}",
                session=f"--session repeats-{number}" if part else "",
            shell:
                "{RUN_LIGHT} measure compare --gpu {input.gpu:q} --schedule {input.schedule:q} "
                "--target {wildcards.target} {params.repeats} {params.session} --log {log:q} -o {output:q}"

    # whether auto is the same as locked at the highest clocks, which every percentage takes it not to be: the core clock
    # alone, the memory clock alone, both
    for number, (part, (first, last)) in enumerate(layout.parts(layout.LOCKING_REPEATS, STUDY.sessions).items()):

        rule:
            name:
                f"compare_locked_{number}" if part else "compare_locked"
            input:
                kernels,
                gpu=SETUP,
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

else:

    if STUDY.headline:

        rule measure_again:
            input:
                gpu=SETUP,
                schedules=RELIED_ON,
            output:
                AGAIN,
            log:
                "logs/" + FOLDER + "/again-{repeat}.log",
            localrule: True
            threads: 0
            run:
                within(log, jobs.again, input.gpu, [*input.schedules], int(wildcards.repeat), [*output])

    rule validate:
        input:
            gpu=SETUP,
            schedule=after_profile(validated, published_profile),
        output:
            VALIDATION,
        log:
            "logs/" + FOLDER + "/validate-published-{schedule}-{repeat}.log",
        wildcard_constraints:
            schedule=VALIDATED,
        localrule: True
        threads: 0
        run:
            repeat = int(wildcards.repeat)
            within(log, jobs.compare, input.gpu, input.schedule, output[0], range(repeat, repeat + 1))

    # a job a batch or degree: each kernel takes milliseconds, and keeps a record of its own
    for variant in (*STUDY.variants_of("batch"), *STUDY.variants_of("tp")):

        rule:
            name:
                f"carry_over_{variant.replace('-', '_')}"
            input:
                gpu=STUDY.variants[variant].setup.path,
                schedule=after_profile(CARRIED_OVER, published_profile),
            output:
                expand(
                    FOLDER + "/measurements/{variant}/{target}.json",
                    variant=variant,
                    target=STUDY.variants[variant].kernels,
                ),
            log:
                f"logs/{FOLDER}/carry-over/{variant}.log",
            localrule: True
            threads: 0
            params:
                targets=STUDY.variants[variant].kernels,
                repeats=range(STUDY.repeats),
            run:
                for target, record in zip(params.targets, output, strict=True):
                    within(log, jobs.compare, input.gpu, input.schedule, record, params.repeats, target)


VARIANT = FOLDER + "/variants/{variant}"


rule sweep_variant:
    input:
        gpu=setup_of,
    output:
        VARIANT + "/profile.parquet",
    log:
        "logs/" + FOLDER + "/sweep-{variant}.log",
    localrule: True
    threads: 0
    params:
        pairs=STUDY.pairs,
        # passes are chosen again only where the headline is repeated
        studies=lambda wildcards: (
            ("kernel", "pass") if wildcards.variant in STUDY.variants_of("tensor-energy") else ("kernel",)
        ),
    run:
        in_turn(log, jobs.sweep, input.gpu, params.pairs, 1, params.studies, output[0])


rule choose_variant:
    input:
        rules.sweep_variant.output,
    output:
        VARIANT + "/schedule{of}.json",
    log:
        "logs/" + FOLDER + "/choose-{variant}{of}.log",
    wildcard_constraints:
        of="|-pass",
    localrule: True
    threads: 0
    params:
        level=lambda wildcards: wildcards.of.removeprefix("-") or "kernel",
        ties=STUDY.ties(layout.PUBLISHED),
    run:
        in_turn(log, jobs.choose, input[0], output[0], params.level, ties=params.ties)


rule validate_variant:
    input:
        gpu=setup_of,
        schedule=VARIANT + "/schedule.json",
    output:
        VARIANT + "/fresh.json",
    log:
        "logs/" + FOLDER + "/validate-{variant}.log",
    localrule: True
    threads: 0
    params:
        repeats=range(STUDY.repeats),
    run:
        within(log, jobs.compare, input.gpu, input.schedule, output[0], params.repeats)
