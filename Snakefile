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


# what stands beside the road: a package without rules has no file there
for name in extensions.extensions():
    if Path(workflow.current_basedir, f"workflow/rules/{name}.smk").is_file():

        include: f"workflow/rules/{name}.smk"


onstart:
    start()


onsuccess:
    # clocks that could not be restored are an error of the run, however well its jobs went; so is a changed result
    if not finish() or not is_as_written():
        sys.exit(1)


onerror:
    finish()


rule all:
    default_target: True
    input:
        # the first has all records, and one list of thousands is enough
        rules.profile.input,
        chosen,
        REPORTED,
