# Energy management of LLM inference serving: profile of an instance, anchors, DynamoLLM's Table I; a trace replayed
# through DynamoLLM and its baselines.
from kernel_dvfs.serving.study_plan import plan_serving

from kernel_dvfs.serving.replay_plan import FIGURES, TABLES, plan_replay, shown_by

try:
    SERVING = plan_serving(config)
    REPLAY = plan_replay(config, SERVING)
except InputError as error:
    sys.exit(f"error: {error}")

SERVING_FOLDER = SERVING.folder
SERVING_TABLES = ["anchors", "anchors_summary"]
# beside a given profile there is no simulated instance to compare
SERVING_TABLE1 = ["table1", "table1_agreement", "table1_mix"] if SERVING.made_here else []


rule serving:
    input:
        SERVING.profile,
        expand(f"{SERVING_FOLDER}/tables/{{name}}.{{form}}", name=SERVING_TABLES + SERVING_TABLE1, form=["csv", "md"]),
        expand(f"{SERVING_FOLDER}/figures/{{name}}.{{form}}", name=SERVING_TABLE1[:1], form=layout.FIGURE_FORMATS),
        expand(f"{REPLAY.folder}/tables/{{name}}.{{form}}", name=REPLAY.tables, form=["csv", "md"]),
        expand(f"{REPLAY.folder}/figures/{{name}}.{{form}}", name=REPLAY.figures, form=layout.FIGURE_FORMATS),


if SERVING.made_here:

    rule serving_profile:
        output:
            SERVING.profile,
        log:
            f"logs/{SERVING_FOLDER}/profile.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            arguments=f"{SERVING.instance} {SERVING.grid}",
        shell:
            "python -m kernel_dvfs serving-profile {params.arguments} -o {output} 2> {log} || {{ cat {log} >&2; exit 2; }}"

    rule serving_table1:
        output:
            report(
                multiext(f"{SERVING_FOLDER}/tables/table1", ".csv", ".md"),
                caption="../report/serving.rst",
                category="Serving",
            ),
            multiext(f"{SERVING_FOLDER}/tables/table1_agreement", ".csv", ".md"),
            multiext(f"{SERVING_FOLDER}/tables/table1_mix", ".csv", ".md"),
            report(
                multiext(f"{SERVING_FOLDER}/figures/table1", ".pdf", ".png"),
                caption="../report/serving.rst",
                category="Serving",
            ),
        log:
            f"logs/{SERVING_FOLDER}/table1.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            arguments=SERVING.instance,
            folder=subpath(output[0], ancestor=2),
        shell:
            "python -m kernel_dvfs serving-table1 {params.folder:q} {params.arguments} "
            "2> {log} || {{ cat {log} >&2; exit 2; }}"


rule serving_anchors:
    output:
        report(
            multiext(f"{SERVING_FOLDER}/tables/anchors", ".csv", ".md"),
            caption="../report/serving.rst",
            category="Serving",
        ),
        multiext(f"{SERVING_FOLDER}/tables/anchors_summary", ".csv", ".md"),
    log:
        f"logs/{SERVING_FOLDER}/anchors.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output[0], ancestor=2),
    shell:
        "python -m kernel_dvfs serving-anchors {params.folder:q} 2> {log} || {{ cat {log} >&2; exit 2; }}"


rule serving_study:
    input:
        SERVING.profile,
        [REPLAY.trace] if REPLAY.trace else [],
    output:
        f"{REPLAY.folder}/study.json",
    log:
        f"logs/{REPLAY.folder}/study.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        options=json.dumps(REPLAY.options),
        folder=subpath(output[0], parent=True),
    shell:
        "python -m kernel_dvfs serving-study {params.folder:q} --options {params.options:q} "
        "2> {log} || {{ cat {log} >&2; exit 2; }}"


rule serving_experiment:
    input:
        rules.serving_study.output,
        SERVING.profile,
    output:
        f"{REPLAY.folder}/experiments/{{experiment}}.json",
    log:
        f"logs/{REPLAY.folder}/experiment-{{experiment}}.log",
    wildcard_constraints:
        experiment="|".join(REPLAY.experiments),
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output[0], ancestor=2),
    shell:
        "python -m kernel_dvfs serving-experiment {wildcards.experiment} {params.folder:q} "
        "2> {log} || {{ cat {log} >&2; exit 2; }}"


rule serving_table:
    input:
        rules.serving_study.output,
        lambda wildcards: shown_by(TABLES, wildcards.name, REPLAY.folder),
    output:
        report(
            multiext(f"{REPLAY.folder}/tables/{{name}}", ".csv", ".md"),
            caption="../report/serving.rst",
            category="Serving",
        ),
    log:
        f"logs/{REPLAY.folder}/table-{{name}}.log",
    wildcard_constraints:
        name="|".join(REPLAY.tables),
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output[0], ancestor=2),
    shell:
        "python -m kernel_dvfs serving-table {wildcards.name} {params.folder:q} 2> {log} || {{ cat {log} >&2; exit 2; }}"


rule serving_figure:
    input:
        rules.serving_study.output,
        lambda wildcards: shown_by(FIGURES, wildcards.name, REPLAY.folder),
    output:
        report(
            multiext(f"{REPLAY.folder}/figures/{{name}}", ".pdf", ".png"),
            caption="../report/serving.rst",
            category="Serving",
        ),
    log:
        f"logs/{REPLAY.folder}/figure-{{name}}.log",
    wildcard_constraints:
        name="|".join(REPLAY.figures),
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output[0], ancestor=2),
    shell:
        "python -m kernel_dvfs serving-figure {wildcards.name} {params.folder:q} 2> {log} || {{ cat {log} >&2; exit 2; }}"
