# Clocks chosen from the profile, locally and globally: one job a schedule, so that a new slack leaves the others as they
# are. Which schedules a study asks for: kernel_dvfs/plan/study.py.


CHOSEN = [
    asked(lambda study: study.schedule_files()),
    asked(lambda study: study.published_files()),
    asked(lambda study: study.iteration_files()),
]


rule choose:
    input:
        rules.measurements.input,
        CHOSEN,


# procedure: as published, from one sweep, or what is relied on; level: of single passes or kernels; scope: one pair for
# all (single), each by itself (local), all together (global)
rule choose_schedule:
    input:
        profile=lambda wildcards: (published_profile if wildcards.procedure else profile)(wildcards),
        # its file is another one after each search; `walked` below says whether the walk is
        walk=ancient(
            lambda wildcards: STUDY.walk_file(
                wildcards.procedure, wildcards.scope, wildcards.objective, wildcards.weights
            )
        ),
    output:
        FOLDER + "/schedules/{procedure}{level}-{scope}-{objective}{slack}{weights}.json",
    log:
        "logs/" + FOLDER + "/choose-{procedure}{level}-{scope}-{objective}{slack}{weights}.log",
    wildcard_constraints:
        procedure="|published/",
        # slack belongs to waste
        objective=r"waste(?=-slack)|edp(?!-slack)|energy(?!-slack)",
        slack=r"|-slack\d+(\.\d+)?",
        weights="|-counts|-raw|-equal-time",
    localrule: True
    threads: 0
    params:
        slack=lambda wildcards: wildcards.slack.replace("-slack", "--slack="),
        weights=lambda wildcards: wildcards.weights.replace("-", "--weights=", 1),
        walk=lambda wildcards, input: f"--walk={input.walk}" if input.walk else "",
        # not from `input`, since Snakemake does not look at what follows from inputs for a change
        walked=lambda wildcards: STUDY.walked(**dict(wildcards.items())),
        ties=lambda wildcards: STUDY.ties(wildcards.procedure),
    run:
        asked_for = (wildcards.level, wildcards.scope, wildcards.objective)
        options = [f"--{name}={each}" for name, each in zip(("granularity", "scope", "objective"), asked_for)]
        options += filter(None, (params.slack, params.weights, params.walk))
        choose_within(input.profile, output, log, params.ties, *options)


# the least energy at every tolerated slowdown, as published: Figure 6
rule choose_frontier:
    input:
        published_profile,
    output:
        STUDY.schedule(layout.published("frontier")),
    log:
        "logs/" + FOLDER + "/choose-frontier.log",
    localrule: True
    threads: 0
    params:
        weights=[f"--weights={config['weights']}"] if config["weights"] else [],
        ties=STUDY.ties(layout.PUBLISHED),
    run:
        choose_within(input, output, log, params.ties, "--frontier", *params.weights)


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
            "logs/" + FOLDER + "/choose-deployable.log",
        params:
            stalls=config["clock_changes"]["swept_stall_s"],
            options=STUDY.deployable_options(),
            folder=subpath(output[0], parent=True),
        shell:
            "{RUN} study deployable {input.profile:q} {params.options:q} --stalls {params.stalls} "
            "--reserve-of {input.strict:q} --log {log:q} -o {params.folder:q}"


if STUDY.is_mapped:

    # the strict saving over what nobody has measured: the band of the headline
    rule map_headline:
        input:
            gpu=SETUP,
        output:
            STUDY.headline_map,
        log:
            "logs/" + FOLDER + "/headline-map.log",
        localrule: True
        # within this process beside all else: the study by clock has the core
        threads: 0
        params:
            pairs=clocks_argument(STUDY.pairs),
            axes=json.dumps(STUDY.headline_axes),
            ties=STUDY.ties(),
        run:
            options = {**dict(params.items()), "gpu": input.gpu, "output": output}
            within(log, "study", "headline-map", *(f"--{name}={value}" for name, value in options.items()))
