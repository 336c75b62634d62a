# What a board can be set to today, where a change of clocks takes time.

CHOSEN.append(asked(lambda study: study.iteration_files()))

if STUDY.is_deployable:

    # one pair, a pair a pass and launch by launch, where a change of clocks takes time; schedules that can be played
    rule choose_deployable:
        input:
            profile=profile,
            strict=after_profile(STUDY.schedule(layout.STRICT)),
            measured=STUDY.latency_files(),
            # a simulated GPU knows what a change takes, and plays iterations
            gpu=SETUP if STUDY.is_simulated else [],
        output:
            STUDY.iteration_files(),
            STUDY.deployable_file,
        log:
            "logs/" + FOLDER + "/choose-deployable.log",
        threads: 0
        params:
            stalls=config["clock_changes"]["swept_stall_s"],
            options=STUDY.deployable_options(),
            gpu=lambda wildcards, input: f"--gpu={input.gpu}" if input.gpu else [],
            folder=subpath(output[0], parent=True),
        shell:
            "{RUN_ALONE} study deployable {input.profile:q} {params.options:q} {params.gpu:q} --stalls {params.stalls} "
            "--reserve-of {input.strict:q} --log {log:q} -o {params.folder:q}"
