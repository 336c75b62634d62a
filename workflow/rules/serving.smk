# Energy management of LLM inference serving: profile of an instance, anchors, DynamoLLM's Table I.
from kernel_dvfs.study_serving import plan_serving

try:
    SERVING = plan_serving(config)
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


if SERVING.made_here:

    rule serving_profile:
        output:
            SERVING.profile,
        log:
            f"logs/{SERVING_FOLDER}/profile.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            arguments=SERVING.arguments,
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
            gpu=config["serving"]["gpu"],
            model=config["serving"]["model"],
        shell:
            "python -m kernel_dvfs serving-table1 {SERVING_FOLDER:q} --gpu {params.gpu} --model {params.model} "
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
    shell:
        "python -m kernel_dvfs serving-anchors {SERVING_FOLDER:q} 2> {log} || {{ cat {log} >&2; exit 2; }}"
