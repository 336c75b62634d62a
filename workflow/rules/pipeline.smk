# The time-energy frontier of a training pipeline: its stages, what is solved of them, tables and figures of that.
from kernel_dvfs.pipeline.report import figures as pipeline_figures
from kernel_dvfs.pipeline.report import tables as pipeline_tables
from kernel_dvfs.pipeline.study_plan import plan_pipeline

try:
    PIPELINE = plan_pipeline(config)
except InputError as error:
    sys.exit(f"error: {error}")

PIPELINE_FOLDER = PIPELINE.folder
PIPELINE_OUTPUTS = {"table": outputs.outputs(pipeline_tables), "figure": outputs.outputs(pipeline_figures)}

if "pipeline" in sys.argv:
    at_end(lambda: f"training pipeline: tables and figures are in {PIPELINE_FOLDER}")


rule pipeline:
    input:
        expand(f"{PIPELINE_FOLDER}/mb{{microbatches}}/frontier.csv", microbatches=PIPELINE.options["microbatches"]),
        [
            f"{PIPELINE_FOLDER}/{kind}s/{name}.{form}"
            for kind, declared in PIPELINE_OUTPUTS.items()
            for name, output in declared.items()
            if output.made_by(PIPELINE)
            for form in output.formats
        ],


if PIPELINE.setup:
    # rule write_setup writes it
    PLANNED[PIPELINE.setup.path] = PIPELINE.setup.text

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
            pairs=clocks_argument(PIPELINE.pairs),
            auto_repeats=STUDY.options["auto_repeats"],
        shell:
            f"{RUN} measure sweep --gpu {{input.gpu:q}} --pairs {{params.pairs}} --studies kernel "
            f"--auto-repeats {{params.auto_repeats}} -o {{output:q}} {LOGGED}"


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
        f"{RUN} pipeline profile {{input:q}} {{params.folder:q}} --options {{params.options:q}} {{params.scales}} {LOGGED}"


rule pipeline_solve:
    input:
        rules.pipeline_stages.output,
        # plans are searched for by the compiled core where there is one
        "results/native/pipeline/build.json",
    output:
        multiext(
            f"{PIPELINE_FOLDER}/mb{{microbatches}}/",
            "frontier.csv",
            "published.csv",
            "methods.csv",
            "runs.csv",
            "switching.csv",
        ),
        directory(f"{PIPELINE_FOLDER}/mb{{microbatches}}/plans"),
    log:
        f"logs/{PIPELINE_FOLDER}/solve-{{microbatches}}.log",
    wildcard_constraints:
        microbatches=r"\d+",
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output[0], ancestor=2),
    shell:
        f"{RUN} pipeline solve {{params.folder:q}} {{wildcards.microbatches}} plans switching {LOGGED}"


# what takes longer than frontier and plans together: the linear-programme solver, and clocks for every kernel
rule pipeline_solve_part:
    input:
        rules.pipeline_stages.output,
        PIPELINE.source,
        "results/native/pipeline/build.json",
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
        folder=subpath(output[0], ancestor=2),
    shell:
        f"{RUN} pipeline solve {{params.folder:q}} {{wildcards.microbatches}} {{wildcards.part}} {LOGGED}"


for kind, formats in (("table", outputs.TABLE_FORMATS), ("figure", outputs.FIGURE_FORMATS)):

    rule:
        name:
            f"pipeline_{kind}"
        input:
            rules.pipeline_stages.output,
            lambda wildcards, declared=PIPELINE_OUTPUTS[kind]: declared[wildcards.name].inputs(PIPELINE),
        output:
            report(
                multiext(f"{PIPELINE_FOLDER}/{kind}s/{{name}}.", *formats),
                caption="../report/output.rst",
                category="Pipeline",
            ),
        log:
            f"logs/{PIPELINE_FOLDER}/{kind}-{{name}}.log",
        wildcard_constraints:
            name="|".join(PIPELINE_OUTPUTS[kind]),
        conda:
            "../../envs/pipeline.yaml"
        params:
            kind=kind,
            folder=subpath(output[0], ancestor=2),
            caption=lambda wildcards, declared=PIPELINE_OUTPUTS[kind]: declared[wildcards.name].in_words,
        shell:
            f"{RUN} pipeline {{params.kind}} {{wildcards.name}} {{params.folder:q}} {LOGGED}"
