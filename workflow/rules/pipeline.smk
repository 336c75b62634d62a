# The time-energy frontier of a training pipeline: its stages, what is solved of them, tables and figures of that.
from kernel_dvfs import outputs
from kernel_dvfs.pipeline.report import figures as pipeline_figures, tables as pipeline_tables
from kernel_dvfs.pipeline.study_plan import plan_pipeline

try:
    PIPELINE = plan_pipeline(config)
except InputError as error:
    sys.exit(f"error: {error}")

PIPELINE_FOLDER = PIPELINE.folder
PIPELINE_OUTPUTS = {
    "table": outputs.outputs(pipeline_tables),
    "figure": outputs.outputs(pipeline_figures),
}


def pipeline_files(kind):
    """The files of all tables or figures that this study has."""
    return [
        f"{PIPELINE_FOLDER}/{kind}s/{name}.{form}"
        for name, output in PIPELINE_OUTPUTS[kind].items()
        if output.when(PIPELINE)
        for form in output.formats
    ]


def pipeline_caption(kind, name):
    """What Snakemake's report says of a table or figure."""
    output = PIPELINE_OUTPUTS[kind][name]
    return output.text or output.caption


rule pipeline:
    input:
        expand(f"{PIPELINE_FOLDER}/mb{{microbatches}}/frontier.csv", microbatches=PIPELINE.options["microbatches"]),
        pipeline_files("table"),
        pipeline_files("figure"),


if PIPELINE.setup:

    rule pipeline_kernels:
        input:
            gpu=PIPELINE.setup.path,
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
        "python -m kernel_dvfs pipeline profile {input:q} {params.folder:q} --options {params.options:q} {params.scales} "
        "2> {log} || {{ cat {log} >&2; exit 2; }}"


rule pipeline_solve:
    input:
        rules.pipeline_stages.output,
    output:
        [f"{PIPELINE_FOLDER}/mb{{microbatches}}/{name}.csv" for name in ("frontier", "published", "methods", "runs")],
        f"{PIPELINE_FOLDER}/mb{{microbatches}}/switching.csv",
        directory(f"{PIPELINE_FOLDER}/mb{{microbatches}}/plans"),
    log:
        f"logs/{PIPELINE_FOLDER}/solve-{{microbatches}}.log",
    wildcard_constraints:
        microbatches=r"\d+",
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=PIPELINE_FOLDER,
    shell:
        "python -m kernel_dvfs pipeline solve {params.folder:q} {wildcards.microbatches} plans switching "
        "2> {log} || {{ cat {log} >&2; exit 2; }}"


# what takes longer than frontier and plans together: the linear-programme solver, and clocks for every kernel
rule pipeline_solve_part:
    input:
        rules.pipeline_stages.output,
        PIPELINE.source,
    output:
        f"{PIPELINE_FOLDER}/mb{{microbatches}}/{{part}}.csv",
    log:
        f"logs/{PIPELINE_FOLDER}/solve-{{microbatches}}-{{part}}.log",
    wildcard_constraints:
        microbatches=r"\d+",
        part="certificate|levels",
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=PIPELINE_FOLDER,
    shell:
        "python -m kernel_dvfs pipeline solve {params.folder:q} {wildcards.microbatches} {wildcards.part} "
        "2> {log} || {{ cat {log} >&2; exit 2; }}"


rule pipeline_table:
    input:
        rules.pipeline_stages.output,
        lambda wildcards: PIPELINE_OUTPUTS["table"][wildcards.name].inputs(PIPELINE),
    output:
        report(
            multiext(f"{PIPELINE_FOLDER}/tables/{{name}}", ".csv", ".md"),
            caption="../report/output.rst",
            category="Pipeline",
        ),
    log:
        f"logs/{PIPELINE_FOLDER}/table-{{name}}.log",
    wildcard_constraints:
        name="|".join(PIPELINE_OUTPUTS["table"]),
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=PIPELINE_FOLDER,
        caption=lambda wildcards: pipeline_caption("table", wildcards.name),
    shell:
        "python -m kernel_dvfs pipeline table {wildcards.name} {params.folder:q} 2> {log} || {{ cat {log} >&2; exit 2; }}"


rule pipeline_figure:
    input:
        rules.pipeline_stages.output,
        lambda wildcards: PIPELINE_OUTPUTS["figure"][wildcards.name].inputs(PIPELINE),
    output:
        report(
            multiext(f"{PIPELINE_FOLDER}/figures/{{name}}", ".pdf", ".png"),
            caption="../report/output.rst",
            category="Pipeline",
        ),
    log:
        f"logs/{PIPELINE_FOLDER}/figure-{{name}}.log",
    wildcard_constraints:
        name="|".join(PIPELINE_OUTPUTS["figure"]),
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=PIPELINE_FOLDER,
        caption=lambda wildcards: pipeline_caption("figure", wildcards.name),
    shell:
        "python -m kernel_dvfs pipeline figure {wildcards.name} {params.folder:q} 2> {log} || {{ cat {log} >&2; exit 2; }}"
