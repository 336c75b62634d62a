# Tables, figures, verdicts and the page of them all. Each table and figure says in its own module what it is made from.
from kernel_dvfs.report import figures, page, tables

for name in STUDY.tables():
    declared = outputs.outputs(tables)[name]

    rule:
        name:
            f"table_{name}"
        input:
            profile,
            asked(declared.inputs),
        output:
            report(STUDY.table_files(name), caption="../report/output.rst", category="Tables"),
        log:
            f"logs/{FOLDER}/table-{name}.log",
        group:
            "tables"
        conda:
            "../../envs/pipeline.yaml"
        params:
            name=name,
            folder=subpath(output[0], ancestor=2),
            options=lambda wildcards, declared=declared: json.dumps(declared.options(as_known())),
            caption=declared.in_words,
        shell:
            f"{RUN} study table {{params.name}} {{params.folder:q}} --options {{params.options:q}} {LOGGED}"


for name in STUDY.figures():
    declared = outputs.outputs(figures)[name]

    rule:
        name:
            name
        input:
            profile,
            asked(declared.inputs),
        output:
            report(STUDY.figure_files(name), caption="../report/output.rst", category="Figures"),
        log:
            f"logs/{FOLDER}/{name}.log",
        group:
            "figures"
        conda:
            "../../envs/pipeline.yaml"
        params:
            name=name,
            folder=subpath(output[0], ancestor=2),
            caption=declared.in_words,
        shell:
            f"{RUN} study figure {{params.name}} {{params.folder:q}} {LOGGED}"


# every GPU and workload that lies in results/, whichever was made last
rule compare_gpus:
    input:
        after_profile(asked(lambda study: study.schedule_files())),
        f"{FOLDER}/tables/validation.csv" if "validation" in STUDY.tables() else [],
        STUDY.elsewhere("*"),
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
        f"{RUN} study compare-gpus results {LOGGED}"


rule report_page:
    input:
        profile,
        asked(lambda study: study.schedule_files()),
        [STUDY.table_files(name) for name in STUDY.tables()],
        [STUDY.figure_files(name) for name in STUDY.figures()],
    output:
        report(f"{FOLDER}/report.html", caption="../report/output.rst", category="Page"),
    log:
        f"logs/{FOLDER}/report.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output[0], parent=True),
        without=",".join(
            sorted({*outputs.outputs(tables), *outputs.outputs(figures)} - {*STUDY.tables(), *STUDY.figures()})
        ),
        grid=f"--usd-per-kwh {config['serving']['usd_per_kwh']} --co2-g-per-kwh {config['serving']['co2_g_per_kwh']}",
        caption=page.STUDY_PAGE.caption,
    shell:
        f"{RUN} report {{params.folder:q}} --without {{params.without:q}} {{params.grid}} -o {{output:q}} {LOGGED}"


rule comparison_page:
    input:
        after_profile(rules.compare_gpus.output),
        rules.report_page.output,
    output:
        report("results/comparison/report.html", caption="../report/output.rst", category="Page"),
    log:
        "logs/comparison-page.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output[0], parent=True),
        # no inputs: a page must not start what other targets make
        beside=planning.seen("results/pipeline", "results/serving"),
        caption=page.COMPARISON_PAGE.caption,
    shell:
        f"{RUN} report {{params.folder:q}} -o {{output:q}} {LOGGED}"


rule report:
    input:
        rules.measurements.input,
        rules.report_page.output,
        [STUDY.table_files(name) for name in STUDY.tables()],
        [STUDY.figure_files(name) for name in STUDY.figures()],
        [rules.compare_gpus.output, rules.comparison_page.output] if STUDY.is_chosen else [],
