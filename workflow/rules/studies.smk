# Studies beyond the paper: is a claimed saving the one you get, what does a guided search find, what do slow changes of
# clocks leave. What each takes is in kernel_dvfs/studies/plan.py.
from kernel_dvfs.studies import plan as studies_plan

STUDIES = studies_plan.studies(STUDY)


rule beyond:
    input:
        [job.outputs + job.reported for job in STUDIES],


for job in STUDIES:

    rule:
        name:
            job.name
        input:
            # the profile is looked at again when it is there
            [profile if path == STUDY.profile else path for path in job.inputs],
        output:
            job.outputs,
            report(job.reported, caption="../report/output.rst", category="Beyond the paper"),
        log:
            f"logs/{FOLDER}/{job.name}.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            words=job.words,
            caption=job.caption,
        shell:
            f"{RUN} {{params.words:q}} {LOGGED}"


if STUDY.is_mapped:

    # the strict saving over what nobody has measured: the band of the headline
    rule map_headline:
        input:
            gpu=setup,
        output:
            STUDY.headline_map,
        log:
            f"logs/{FOLDER}/headline-map.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            pairs=clocks_argument(STUDY.pairs),
            axes=json.dumps(STUDY.headline_axes),
            ties=config["ties"],
        shell:
            f"{RUN} study headline-map --gpu {{input.gpu:q}} --pairs {{params.pairs}} --axes {{params.axes:q}} "
            f"--ties {{params.ties}} -o {{output:q}} {LOGGED}"
