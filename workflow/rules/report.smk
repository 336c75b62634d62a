# Tables, figures and verdicts: each its own job, from a results folder into itself.

for name in tables():

    rule:
        name:
            f"table_{name}"
        input:
            f"{FOLDER}/profile.parquet",
            table_inputs(name),
        output:
            report(table_files(name), caption=f"../report/{name}.rst", category="Tables"),
        log:
            f"logs/{FOLDER}/table-{name}.log",
        group:
            "tables"
        conda:
            "../../envs/pipeline.yaml"
        params:
            name=name,
            folder=lambda wildcards, output: Path(output[0]).parents[1],
            options=table_options(name),
        shell:
            "python -m kernel_dvfs table {params.name} {params.folder} --options {params.options:q} 2> {log} || {{ cat {log} >&2; exit 2; }}"


for name in figures():

    rule:
        name:
            name
        input:
            f"{FOLDER}/profile.parquet",
            figure_inputs(name),
        output:
            report(figure_files(name), caption=f"../report/{name}.rst", category="Figures"),
        log:
            f"logs/{FOLDER}/{name}.log",
        group:
            "figures"
        conda:
            "../../envs/pipeline.yaml"
        params:
            name=name,
            folder=lambda wildcards, output: Path(output[0]).parents[1],
        shell:
            "python -m kernel_dvfs figure {params.name} {params.folder} 2> {log} || {{ cat {log} >&2; exit 2; }}"


# every GPU and workload that lies in results/, whichever was made last
rule compare_gpus:
    input:
        schedules(),
        f"{FOLDER}/tables/validation.csv" if COMPARED_HERE else [],
        others("*"),
    output:
        "results/comparison/gpus.csv",
        "results/comparison/gpus.md",
        "results/comparison/specimens.csv",
        "results/comparison/specimens.md",
    log:
        "logs/comparison.log",
    conda:
        "../../envs/pipeline.yaml"
    shell:
        "python -m kernel_dvfs compare-gpus results 2> {log} || {{ cat {log} >&2; exit 2; }}"


rule report:
    input:
        [table_files(name) for name in tables()],
        [figure_files(name) for name in figures()],
        rules.compare_gpus.output if CHOSEN_HERE else [],
