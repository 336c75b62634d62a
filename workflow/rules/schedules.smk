# Clocks chosen from the profile: one job a schedule, so that a new slack leaves the others as they are.


rule choose:
    input:
        rules.measurements.input,
        schedules(),


rule choose_schedule:
    input:
        f"{FOLDER}/profile.parquet",
    output:
        f"{FOLDER}/schedules/{{granularity}}-{{scope}}-{{objective}}{{weights}}.json",
    log:
        f"logs/{FOLDER}/choose-{{granularity}}-{{scope}}-{{objective}}{{weights}}.log",
    wildcard_constraints:
        granularity="pass|kernel",
        scope="single|local|global",
        objective=r"waste-slack\d+(\.\d+)?|edp|energy",
        weights="|-counts|-raw|-equal-time",
    group:
        "choose"
    conda:
        "../../envs/pipeline.yaml"
    params:
        options=choice_options,
        ties=config["ties"],
    shell:
        "python -m kernel_dvfs choose {input} --granularity {wildcards.granularity} --scope {wildcards.scope} "
        "{params.options} --ties {params.ties} -o {output} 2> {log} || {{ cat {log} >&2; exit 2; }}"
