# The time-energy frontier of a training pipeline: its stages, and what is solved of them for a number of microbatches.

PIPELINE = BESIDE["pipeline"]

SOLVED = PIPELINE.folder + "/mb{microbatches}"


rule pipeline:
    input:
        # one that is lost is made again although the tables are there
        PIPELINE.records(),
        files_of(PIPELINE),
        PIPELINE.folder + "/report.html",


if PIPELINE.setup:

    rule pipeline_kernels:
        input:
            gpu=PIPELINE.setup.path,
        output:
            PIPELINE.source,
        log:
            "logs/" + PIPELINE.folder + "/kernels.log",
        localrule: True
        threads: 0
        params:
            pairs=PIPELINE.pairs,
            auto_repeats=STUDY.options["auto_repeats"],
        run:
            in_turn(log, jobs.sweep, input.gpu, params.pairs, params.auto_repeats, ["kernel"], output[0])


rule pipeline_stages:
    input:
        PIPELINE.source,
    output:
        stages=PIPELINE.folder + "/stages.csv",
        study=PIPELINE.folder + "/study.json",
    log:
        "logs/" + PIPELINE.folder + "/stages.log",
    params:
        options=json.dumps(PIPELINE.options),
        scales=f"--scale-time {PIPELINE.scale_time} --scale-energy {PIPELINE.scale_energy}",
        folder=subpath(output.study, parent=True),
    shell:
        "{RUN} pipeline profile {input:q} {params.folder:q} --options {params.options:q} {params.scales} --log {log:q}"


# a large frontier is solved by jobs of their own, each for some of its times
PARTS = PIPELINE.frontier_parts
BOUNDS = [SOLVED + f"/bounds-{part}of{PARTS}.csv" for part in range(1, PARTS + 1)] if PARTS > 1 else []


rule pipeline_solve_times:
    input:
        rules.pipeline_stages.output,
        built("results/native/pipeline/build.json"),
    output:
        SOLVED + "/bounds-{part}of{parts}.csv",
    log:
        "logs/" + PIPELINE.folder + "/solve-{microbatches}-times-{part}of{parts}.log",
    # as many as it is given: it solves its times in threads
    threads: 8
    params:
        folder=subpath(output[0], ancestor=2),
    shell:
        "{RUN} pipeline solve {params.folder:q} {wildcards.microbatches} --frontier-part "
        "{wildcards.part}/{wildcards.parts} --log {log:q}"


rule pipeline_solve:
    input:
        rules.pipeline_stages.output,
        # plans are searched for by the compiled core where there is one
        built("results/native/pipeline/build.json"),
        bounds=BOUNDS,
    output:
        multiext(SOLVED + "/", "frontier.csv", "published.csv", "methods.csv", "runs.csv", "switching.csv"),
        directory(SOLVED + "/plans"),
    log:
        "logs/" + PIPELINE.folder + "/solve-{microbatches}.log",
    params:
        folder=subpath(output[0], ancestor=2),
    shell:
        "{RUN} pipeline solve {params.folder:q} {wildcards.microbatches} plans switching --log {log:q} --join {input.bounds:q}"


# what takes longer than frontier and plans together: the linear-programme solver, and clocks for every kernel
rule pipeline_solve_part:
    input:
        rules.pipeline_stages.output,
        PIPELINE.source,
        built("results/native/pipeline/build.json"),
        bounds=BOUNDS,
    output:
        SOLVED + "/{part}.csv",
    log:
        "logs/" + PIPELINE.folder + "/solve-{microbatches}-{part}.log",
    wildcard_constraints:
        part="certificate|levels",
    params:
        folder=subpath(output[0], ancestor=2),
    shell:
        "{RUN} pipeline solve {params.folder:q} {wildcards.microbatches} {wildcards.part} --log {log:q} --join {input.bounds:q}"


rule pipeline_page:
    input:
        files_of(PIPELINE),
    output:
        report(PIPELINE.folder + "/report.html", caption="../report/output.rst", category="Page"),
    log:
        "logs/" + PIPELINE.folder + "/page.log",
    localrule: True
    threads: 0
    params:
        caption="The pipeline study as one page: what its plans save, beside the published algorithm, and the proof.",
    run:
        in_turn(log, jobs.page, PIPELINE.folder, output[0])
