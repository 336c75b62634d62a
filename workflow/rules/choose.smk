# Clocks chosen from the profile, locally and globally: one job a schedule, so that a new slack leaves the others as they
# are. Which schedules a study asks for: kernel_dvfs/plan/study.py.


# input functions; rules of an extension add theirs
CHOSEN = [
    asked(lambda study: study.schedule_files()),
    asked(lambda study: study.published_files()),
]


def chosen(wildcards):
    """All schedules that the study asks for."""
    return [path for of_study in CHOSEN for path in of_study(wildcards)]


rule choose:
    input:
        rules.measurements.input,
        chosen,


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
        # a tolerated slowdown, percent
        slack=lambda wildcards: float(wildcards.slack.removeprefix("-slack") or 0) or 0,
        weights=lambda wildcards: wildcards.weights.removeprefix("-") or None,
        # not from `input`, since Snakemake does not look at what follows from inputs for a change
        walked=lambda wildcards: STUDY.walked(**dict(wildcards.items())),
        ties=lambda wildcards: STUDY.ties(wildcards.procedure),
    run:
        asked_for = (wildcards.level, wildcards.scope, wildcards.objective, params.slack, params.weights)
        in_turn(log, jobs.choose, str(input.profile), output[0], *asked_for, params.ties, str(input.walk))


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
        weights=config["weights"],
        ties=STUDY.ties(layout.PUBLISHED),
    run:
        in_turn(log, jobs.frontier, input[0], output[0], params.ties, params.weights)
