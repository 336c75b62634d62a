# Energy management of LLM inference serving: profile of an instance, anchors, DynamoLLM's Table I; a trace replayed
# through DynamoLLM and its baselines, and tuned static plans. The answer first; the paper's tables when asked.
from kernel_dvfs_serving.study_plan import REPLAYED

SERVING = BESIDE["serving"]

# CPU seconds, about: a profile's and a table's of its settings and requests, an experiment's of the trace's requests
for name, cost in SERVING.costs.items():
    weigh(name, cost)


rule serving:
    input:
        SERVING.path("systems"),
        SERVING.page,


rule serving_paper:
    input:
        files_of(SERVING),
        SERVING.experiments.values(),
        rules.serving.input,


if SERVING.made_here:

    rule serving_profile:
        input:
            [SERVING.trace] if SERVING.trace else [],
        output:
            SERVING.profile,
        log:
            "logs/" + SERVING.folder + "/profile.log",
        params:
            arguments=f"{SERVING.instance} {SERVING.grid}",
        shell:
            "{RUN} serving profile {params.arguments} --log {log:q} -o {output:q}"

    rule serving_table1:
        output:
            SERVING.path("table1"),
        log:
            "logs/" + SERVING.folder + "/table1.log",
        params:
            arguments=SERVING.instance,
        shell:
            "{RUN} serving table1 {params.arguments} --log {log:q} -o {output:q}"


rule serving_anchors:
    output:
        SERVING.path("anchors"),
    log:
        "logs/" + SERVING.folder + "/anchors.log",
    shell:
        "{RUN} serving anchors --log {log:q} -o {output:q}"


rule serving_study:
    input:
        SERVING.profile,
        [SERVING.trace] if SERVING.trace else [],
    output:
        SERVING.replay + "/study.json",
    log:
        "logs/" + SERVING.replay + "/study.log",
    params:
        options=json.dumps(SERVING.options),
        folder=subpath(output[0], parent=True),
    shell:
        "{RUN} serving study {params.folder:q} --options {params.options:q} --log {log:q}"


rule serving_experiment:
    input:
        rules.serving_study.output,
        SERVING.profile,
        # it varies their plan
        lambda wildcards: SERVING.path("systems") if wildcards.experiment == "sensitivity" else [],
    output:
        SERVING.replay + "/experiments/{experiment}.json",
    log:
        "logs/" + SERVING.replay + "/experiment-{experiment}.log",
    wildcard_constraints:
        experiment="|".join(REPLAYED),
    threads: lambda wildcards: REPLAYED[wildcards.experiment]
    params:
        folder=subpath(output[0], ancestor=2),
    shell:
        "{RUN} serving experiment {wildcards.experiment} {params.folder:q} --cores {threads} --log {log:q}"


rule serving_page:
    input:
        SERVING.path("systems"),
        # the paper's tables where they are asked for; a page must not start what it only shows
        (
            files_of(SERVING)
            if "serving_paper" in sys.argv
            else [
                f"{SERVING.replay}/{name}"
                for name in (
                    "tables/savings.json",
                    "tables/margins.json",
                    "tables/classes.json",
                    "figures/savings.png",
                )
            ]
        ),
    output:
        report(SERVING.page, caption="../report/output.rst", category="Page"),
    log:
        "logs/" + SERVING.replay + "/page.log",
    localrule: True
    threads: 0
    params:
        caption="The serving study as one page: who serves the trace for the least energy, what to start, and why.",
    run:
        in_turn(log, jobs.page, SERVING.replay, output[0])
