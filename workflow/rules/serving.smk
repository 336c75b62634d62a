# Energy management of LLM inference serving: profile of an instance, anchors, DynamoLLM's Table I; a trace replayed
# through DynamoLLM and its baselines. The plan names every file; tables and figures declare what they read.
from kernel_dvfs.serving.study_plan import plan_serving

try:
    SERVING = plan_serving(config)
except InputError as error:
    sys.exit(f"error: {error}")

if "serving" in sys.argv:
    at_end(lambda: f"serving: tables and figures are in {SERVING.folder}")


rule serving:
    input:
        SERVING.profile,
        [SERVING.table_files(name) for name in SERVING.tables()],
        [SERVING.figure_files(name) for name in SERVING.figures()],


if SERVING.made_here:

    rule serving_profile:
        input:
            [SERVING.trace] if SERVING.trace else [],
        output:
            SERVING.profile,
        log:
            f"logs/{SERVING.folder}/profile.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            arguments=f"{SERVING.instance} {SERVING.grid}",
        shell:
            f"{RUN} serving profile {{params.arguments}} -o {{output:q}} {LOGGED}"

    rule serving_table1:
        output:
            SERVING.experiments["table1"],
        log:
            f"logs/{SERVING.folder}/table1.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            arguments=SERVING.instance,
        shell:
            f"{RUN} serving table1 {{params.arguments}} -o {{output:q}} {LOGGED}"


rule serving_anchors:
    output:
        SERVING.experiments["anchors"],
    log:
        f"logs/{SERVING.folder}/anchors.log",
    conda:
        "../../envs/pipeline.yaml"
    shell:
        f"{RUN} serving anchors -o {{output:q}} {LOGGED}"


rule serving_study:
    input:
        SERVING.profile,
        [SERVING.trace] if SERVING.trace else [],
    output:
        f"{SERVING.replay}/study.json",
    log:
        f"logs/{SERVING.replay}/study.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        options=json.dumps(SERVING.options),
        folder=subpath(output[0], parent=True),
    shell:
        f"{RUN} serving study {{params.folder:q}} --options {{params.options:q}} {LOGGED}"


rule serving_experiment:
    input:
        rules.serving_study.output,
        SERVING.profile,
    output:
        f"{SERVING.replay}/experiments/{{experiment}}.json",
    log:
        f"logs/{SERVING.replay}/experiment-{{experiment}}.log",
    wildcard_constraints:
        experiment="|".join(SERVING.replayed()),
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output[0], ancestor=2),
    shell:
        f"{RUN} serving experiment {{wildcards.experiment}} {{params.folder:q}} {LOGGED}"


for name, table in SERVING.tables().items():

    rule:
        name:
            f"serving_table_{name}"
        input:
            SERVING.inputs(table),
        output:
            report(SERVING.table_files(name), caption="../report/output.rst", category="Serving"),
        log:
            f"logs/{SERVING.replay}/table-{name}.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            name=name,
            folder=subpath(output[0], ancestor=2),
            caption=table.in_words,
        shell:
            f"{RUN} serving table {{params.name}} {{params.folder:q}} {LOGGED}"


for name, figure in SERVING.figures().items():

    rule:
        name:
            f"serving_figure_{name}"
        input:
            SERVING.inputs(figure),
        output:
            report(SERVING.figure_files(name), caption="../report/output.rst", category="Serving"),
        log:
            f"logs/{SERVING.replay}/figure-{name}.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            name=name,
            folder=subpath(output[0], ancestor=2),
            caption=figure.in_words,
        shell:
            f"{RUN} serving figure {{params.name}} {{params.folder:q}} {LOGGED}"
