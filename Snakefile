# kernel-dvfs: from a configuration to the clocks that waste no energy. Includes and targets, nothing else.
from snakemake.utils import min_version

min_version("9.27")


configfile: f"{workflow.basedir}/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/scheduling.smk"
include: "workflow/rules/native.smk"
include: "workflow/rules/measurements.smk"
include: "workflow/rules/rounds.smk"
include: "workflow/rules/profile.smk"
include: "workflow/rules/schedules.smk"
include: "workflow/rules/carry_over.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/pipeline.smk"
include: "workflow/rules/beyond.smk"
include: "workflow/rules/guided.smk"
include: "workflow/rules/switching.smk"
include: "workflow/rules/serving.smk"


onstart:
    start()


onsuccess:
    finish()


onerror:
    finish()


rule all:
    default_target: True
    input:
        rules.measurements.input,
        rules.native.input,
        rules.profile.input,
        rules.choose.input,
        rules.report.input,
