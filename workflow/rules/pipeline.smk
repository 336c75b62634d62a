# The time-energy frontier of a training pipeline: stages, frontiers and plans, tables and figures beside the paper's.
from kernel_dvfs.pipeline.study_plan import plan_pipeline

try:
    PIPELINE = plan_pipeline(config)
except InputError as error:
    sys.exit(f"error: {error}")

PIPELINE_FOLDER = PIPELINE.folder
# the table of levels needs the kernels behind the stages
PIPELINE_TABLES = [name for name in layout.PIPELINE_TABLES if PIPELINE.levels or name != "levels"]
PIPELINE_FIGURES = ["frontier", "timeline", "breakdown", "straggler", "switching"]


rule pipeline:
    input:
        expand(f"{PIPELINE_FOLDER}/mb{{microbatches}}/frontier.csv", microbatches=PIPELINE.options["microbatches"]),
        expand(f"{PIPELINE_FOLDER}/tables/{{name}}.{{form}}", name=PIPELINE_TABLES, form=["csv", "md"]),
        expand(f"{PIPELINE_FOLDER}/figures/{{name}}.{{form}}", name=PIPELINE_FIGURES, form=layout.FIGURE_FORMATS),


if PIPELINE.setup:

    rule pipeline_kernels:
        input:
            gpu=PIPELINE.setup,
        output:
            PIPELINE.source,
        log:
            f"logs/{PIPELINE_FOLDER}/kernels.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            pairs=studies.clocks_argument(PIPELINE.pairs),
            auto_repeats=AUTO_REPEATS,
        shell:
            "python -m kernel_dvfs sweep --gpu {input.gpu} --pairs {params.pairs} --studies kernel "
            "--auto-repeats {params.auto_repeats} -o {output} 2> {log} || {{ cat {log} >&2; exit 2; }}"


rule pipeline_stages:
    input:
        PIPELINE.source,
    output:
        stages=f"{PIPELINE_FOLDER}/stages.csv",
        study=f"{PIPELINE_FOLDER}/study.json",
    log:
        f"logs/{PIPELINE_FOLDER}/stages.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        options=json.dumps(PIPELINE.options),
        scales=f"--scale-time {PIPELINE.scale_time} --scale-energy {PIPELINE.scale_energy}",
        folder=subpath(output.study, parent=True),
    shell:
        "python -m kernel_dvfs pipeline-profile {input:q} {params.folder:q} --options {params.options:q} {params.scales} "
        "2> {log} || {{ cat {log} >&2; exit 2; }}"


rule pipeline_solve:
    input:
        rules.pipeline_stages.output,
    output:
        f"{PIPELINE_FOLDER}/mb{{microbatches}}/frontier.csv",
        f"{PIPELINE_FOLDER}/mb{{microbatches}}/published.csv",
        directory(f"{PIPELINE_FOLDER}/mb{{microbatches}}/plans"),
    log:
        f"logs/{PIPELINE_FOLDER}/solve-{{microbatches}}.log",
    wildcard_constraints:
        microbatches=r"\d+",
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=lambda wildcards, output: Path(output[0]).parents[1],
    shell:
        "python -m kernel_dvfs pipeline-solve {params.folder:q} {wildcards.microbatches} "
        "2> {log} || {{ cat {log} >&2; exit 2; }}"


rule pipeline_table:
    input:
        rules.pipeline_stages.output,
    output:
        report(
            multiext(f"{PIPELINE_FOLDER}/tables/{{name}}", ".csv", ".md"),
            caption="../report/pipeline.rst",
            category="Pipeline",
        ),
    log:
        f"logs/{PIPELINE_FOLDER}/table-{{name}}.log",
    wildcard_constraints:
        name="|".join(PIPELINE_TABLES),
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=lambda wildcards, output: Path(output[0]).parents[1],
    shell:
        "python -m kernel_dvfs pipeline-table {wildcards.name} {params.folder:q} 2> {log} || {{ cat {log} >&2; exit 2; }}"


rule pipeline_figure:
    input:
        rules.pipeline_stages.output,
    output:
        report(
            multiext(f"{PIPELINE_FOLDER}/figures/{{name}}", ".pdf", ".png"),
            caption="../report/pipeline.rst",
            category="Pipeline",
        ),
    log:
        f"logs/{PIPELINE_FOLDER}/figure-{{name}}.log",
    wildcard_constraints:
        name="|".join(PIPELINE_FIGURES),
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=lambda wildcards, output: Path(output[0]).parents[1],
    shell:
        "python -m kernel_dvfs pipeline-figure {wildcards.name} {params.folder:q} 2> {log} || {{ cat {log} >&2; exit 2; }}"
