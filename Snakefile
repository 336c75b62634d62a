# kernel-dvfs: from a configuration to the clocks that waste no energy. Includes and targets, nothing else.
from snakemake.utils import min_version

min_version("9.27")


configfile: f"{workflow.basedir}/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/native.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/choose.smk"
include: "workflow/rules/validate.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/pipeline.smk"
include: "workflow/rules/serving.smk"


onstart:
    start()


onsuccess:
    # clocks that could not be restored are an error of the run, however well its jobs went
    if not finish():
        sys.exit(1)


onerror:
    finish()


rule all:
    default_target: True
    input:
        # the first has all records, and one list of thousands is enough
        rules.profile.input,
        CHOSEN,
        REPORTED,
