# Tables and figures of every study: each declares above its function what it is made from. The paper's are in
# kernel_dvfs/report, chosen as published: Table 1 is tables/kernel_clocks, Table 2 tables/strategies, its claims
# tables/claims; Figures 2 to 8 are figures/fig2_desirability, fig3_fig4_passes, fig5_kernels, fig6_relaxed_waste,
# fig7_data_parallelism and fig8_tensor_parallelism. Then the pages of them all.

# {path without its ending: what a study asks for}
ASKED = {
    path: each
    for kind, plan in {"gpu": STUDY, **BESIDE}.items()
    for path, each in outputs.asked_by(registry.outputs(kind), plan).items()
}


def files_of(plan):
    """The files of all tables and figures of a study."""
    return [each.files for each in ASKED.values() if each.plan is plan]


def folders_of(kind):
    """The folders that tables or figures belong to, as a pattern."""
    return "|".join(sorted({re.escape(each.folder) for each in ASKED.values() if each.output.kind == kind}))


def made(kind, wildcards):
    """The table or figure of a path, as it is asked for by what is known now."""
    each = ASKED[f"{wildcards.folder}/{kind}s/{wildcards.name}"]
    return outputs.PlannedOutput(each.output, as_known()) if each.plan is STUDY else each


def own_profile(kind):
    """The profile, for tables and figures of the study of a GPU: that of the procedure that each shows. An input by
    itself: what else they are made from is planned before it is there."""

    def inputs(wildcards):
        if wildcards.folder != FOLDER:
            return []
        return (published_profile if made(kind, wildcards).output.procedure == layout.PUBLISHED else profile)(wildcards)

    return inputs


def made_from(kind):
    """What else a table or figure is made from; of a captured step, once its kernels are known."""

    def inputs(wildcards):
        if wildcards.folder == FOLDER:
            study(wildcards)
        return made(kind, wildcards).inputs

    return inputs


rule table:
    input:
        own_profile("table"),
        made_from("table"),
    output:
        report(
            multiext("{folder}/tables/{name}", ".json", ".csv", ".md", ".tex"),
            caption="../report/output.rst",
            category="Tables",
            subcategory="{folder}",
        ),
    log:
        "logs/{folder}/table-{name}.log",
    wildcard_constraints:
        folder=folders_of("table"),
        name=r"\w+",
    localrule: True
    threads: 0
    params:
        options=lambda wildcards: made("table", wildcards).options,
        caption=lambda wildcards: made("table", wildcards).output.in_words,
        # one whose function or declaration is edited is made again, and no other
        digest=lambda wildcards: made("table", wildcards).output.digest,
    run:
        # from its inputs, and no other file that lies there
        about, given = made("table", wildcards).output, json.loads(params.options)
        in_turn(log, jobs.output, about, wildcards.folder, given, [*input])


rule figure:
    input:
        own_profile("figure"),
        made_from("figure"),
    output:
        report(
            multiext("{folder}/figures/{name}", ".pdf", ".png"),
            caption="../report/output.rst",
            category="Figures",
            subcategory="{folder}",
        ),
    log:
        "logs/{folder}/figure-{name}.log",
    wildcard_constraints:
        folder=folders_of("figure"),
        name=r"\w+",
    localrule: True
    threads: 0
    params:
        options=lambda wildcards: made("figure", wildcards).options,
        caption=lambda wildcards: made("figure", wildcards).output.in_words,
        digest=lambda wildcards: made("figure", wildcards).output.digest,
    run:
        about, given = made("figure", wildcards).output, json.loads(params.options)
        in_turn(log, jobs.output, about, wildcards.folder, given, [*input])
        # what drawing leaves is all in cycles: a tenth of this process's memory at the end of a run
        gc.collect()


# every GPU and workload that lies in results/, whichever was made last
rule compare_gpus:
    input:
        after_profile(asked(lambda study: study.schedule_files())),
        FOLDER + "/tables/headline.json" if FOLDER + "/tables/headline" in ASKED else [],
        STUDY.elsewhere("*", layout.STRICT, "headline"),
    output:
        expand("results/comparison/{table}.{form}", table=["gpus", "specimens"], form=["json", "csv", "md"]),
        multiext("results/comparison/figures/strict", ".pdf", ".png"),
    log:
        "logs/comparison.log",
    localrule: True
    threads: 0
    run:
        in_turn(log, comparison.write, "results")


rule report_page:
    input:
        profiles,
        asked(lambda study: study.schedule_files()),
        files_of(STUDY),
        STUDY.native_rows if STUDY.is_of_rows else [],
        # what was inferred of a simulated board
        os.path.relpath(shipped.POSTERIOR_BAND) if STUDY.is_simulated else [],
    output:
        report(FOLDER + "/report.html", caption="../report/output.rst", category="Page"),
    log:
        "logs/" + FOLDER + "/report.log",
    localrule: True
    threads: 0
    params:
        without=sorted({output.name for output in registry.outputs("gpu").left_out_by(STUDY)}),
        grid=[config["serving"][name] for name in ("usd_per_kwh", "co2_g_per_kwh")],
        caption="The whole study as one page that can be mailed: the answer, warnings, clocks, tables, figures, "
        "claims, provenance.",
    run:
        in_turn(log, jobs.page, FOLDER, output[0], params.without, *params.grid)


rule comparison_page:
    input:
        after_profile([*rules.compare_gpus.output, *rules.report_page.output], profiles),
    output:
        report("results/comparison/report.html", caption="../report/output.rst", category="Page"),
    log:
        "logs/comparison-page.log",
    localrule: True
    threads: 0
    params:
        # no inputs: a page must not start what other targets make
        beside=planning.seen(*(f"results/{kind}" for kind in BESIDE)),
        caption="Every GPU, specimen and workload in the results folder side by side, as one page.",
    run:
        in_turn(log, jobs.page, "results/comparison", output[0])


REPORTED = [
    rules.report_page.output,
    files_of(STUDY),
    [rules.compare_gpus.output, rules.comparison_page.output] if STUDY.is_chosen else [],
]


# by clock alone, without the paper's sweep: clocks of each kernel, and what they do when they are measured again
rule answer:
    input:
        # one that failed has left what the last one found
        rules.by_clock.output if STUDY.is_by_clock else [],
        asked(lambda study: study.schedule_files()),
        FOLDER + "/tables/headline.json" if FOLDER + "/tables/headline" in ASKED else [],


rule report:
    input:
        rules.measurements.input,
        REPORTED,
