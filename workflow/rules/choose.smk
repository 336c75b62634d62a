# Clocks chosen from the profile: one job a schedule, so that a new slack leaves the others as they are.


rule choose:
    input:
        rules.measurements.input,
        asked(lambda study: study.schedule_files()),
        asked(lambda study: study.iteration_files()),


rule choose_schedule:
    input:
        profile,
    output:
        f"{FOLDER}/schedules/{{granularity}}-{{scope}}-{{objective}}{{weights}}.json",
    log:
        f"logs/{FOLDER}/choose-{{granularity}}-{{scope}}-{{objective}}{{weights}}.log",
    wildcard_constraints:
        granularity="pass|kernel",
        scope="single|local|global",
        objective=r"waste-slack\d+(\.\d+)?|edp|energy",
        weights="|-counts|-raw|-equal-time",
    group:
        "choose"
    conda:
        "../../envs/pipeline.yaml"
    params:
        options=lambda wildcards: STUDY.choice_options(wildcards.scope, wildcards.objective, wildcards.weights),
        ties=config["ties"],
    # the run has its own line and ends with the answer: that of each schedule is for who calls the command
    shell:
        f"{RUN} choose {{input:q}} --granularity {{wildcards.granularity}} --scope {{wildcards.scope}} "
        f"{{params.options}} --ties {{params.ties}} -o {{output:q}} > /dev/null {LOGGED}"


# the least energy at every tolerated slowdown: Figure 6
rule choose_frontier:
    input:
        profile,
    output:
        f"{FOLDER}/schedules/frontier.json",
    log:
        f"logs/{FOLDER}/choose-frontier.log",
    group:
        "choose"
    conda:
        "../../envs/pipeline.yaml"
    params:
        weights=f"--weights {config['weights']}" if config["weights"] else "",
        ties=config["ties"],
    shell:
        f"{RUN} choose {{input:q}} --frontier {{params.weights}} --ties {{params.ties}} -o {{output:q}} {LOGGED}"


if STUDY.is_deployable:

    # launch by launch, where a change of clocks takes time; schedules that can be played
    rule choose_deployable:
        input:
            profile=profile,
            strict=after_profile(STUDY.schedule(layout.STRICT)),
            measured=STUDY.latency_files(),
        output:
            STUDY.iteration_files(),
            STUDY.deployable_file,
        log:
            f"logs/{FOLDER}/choose-deployable.log",
        group:
            "choose"
        conda:
            "../../envs/pipeline.yaml"
        params:
            stalls=config["clock_changes"]["swept_stall_s"],
            options=STUDY.deployable_options(),
            folder=subpath(output[0], parent=True),
        shell:
            f"{RUN} study deployable {{input.profile:q}} {{params.options:q}} --stalls {{params.stalls}} "
            f"--reserve-of {{input.strict:q}} -o {{params.folder:q}} {LOGGED}"


if STUDY.is_mapped:

    # the strict saving over what nobody has measured: the band of the headline
    rule map_headline:
        input:
            gpu=setup,
        output:
            STUDY.headline_map,
        log:
            f"logs/{FOLDER}/headline-map.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            pairs=clocks_argument(STUDY.pairs),
            axes=json.dumps(STUDY.headline_axes),
            ties=config["ties"],
        shell:
            f"{RUN} study headline-map --gpu {{input.gpu:q}} --pairs {{params.pairs}} --axes {{params.axes:q}} "
            f"--ties {{params.ties}} -o {{output:q}} {LOGGED}"
