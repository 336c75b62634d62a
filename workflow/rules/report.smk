# Tables, figures, verdicts and the page of them all: each its own job, from a results folder into itself.
from kernel_dvfs.report.figures import NAMES as ALL_FIGURES

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


# What the pages show of studies that other targets make, if they lie there. No inputs: a page must not set them going.
BESIDE = {
    folder: sorted(
        f"{path} {path.stat().st_mtime_ns}" for form in ("csv", "png") for path in Path(folder).rglob(f"*.{form}")
    )
    for folder in (f"{FOLDER}/beyond", "results/pipeline", "results/serving")
}


rule report_page:
    input:
        f"{FOLDER}/profile.parquet",
        schedules(),
        [table_files(name) for name in tables()],
        [figure_files(name) for name in figures()],
    output:
        report(f"{FOLDER}/report.html", caption="../report/page.rst", category="Page"),
    log:
        f"logs/{FOLDER}/report.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output[0], parent=True),
        beside=BESIDE[f"{FOLDER}/beyond"],
        without=",".join(sorted({*layout.TABLE_FORMATS, *ALL_FIGURES} - {*tables(), *figures()})),
    shell:
        "python -m kernel_dvfs report {params.folder} --without {params.without:q} -o {output} "
        "2> {log} || {{ cat {log} >&2; exit 2; }}"


rule comparison_page:
    input:
        rules.compare_gpus.output,
        rules.report_page.output,
    output:
        report("results/comparison/report.html", caption="../report/comparison.rst", category="Page"),
    log:
        "logs/comparison-page.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        beside=BESIDE["results/pipeline"] + BESIDE["results/serving"],
        folder=subpath(output[0], parent=True),
    shell:
        "python -m kernel_dvfs report {params.folder} -o {output} 2> {log} || {{ cat {log} >&2; exit 2; }}"


rule report:
    input:
        rules.measurements.input,
        [table_files(name) for name in tables()],
        [figure_files(name) for name in figures()],
        rules.report_page.output,
        [rules.compare_gpus.output, rules.comparison_page.output] if CHOSEN_HERE else [],
