# Clocks chosen from the profile: one job a schedule, so that a new slack leaves the others as they are.


rule choose:
    input:
        rules.measurements.input,
        asked(lambda study: study.schedule_files()),


rule choose_schedule:
    input:
        profile,
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
        options=lambda wildcards: STUDY.choice_options(wildcards.scope, wildcards.objective, wildcards.weights),
        ties=config["ties"],
    shell:
        f"{RUN} choose {{input}} --granularity {{wildcards.granularity}} --scope {{wildcards.scope}} "
        f"{{params.options}} --ties {{params.ties}} -o {{output:q}} {LOGGED}"


# the least energy at every tolerated slowdown: Figure 6
rule choose_frontier:
    input:
        profile,
    output:
        f"{FOLDER}/schedules/frontier.json",
    log:
        f"logs/{FOLDER}/choose-frontier.log",
    group:
        "choose"
    conda:
        "../../envs/pipeline.yaml"
    params:
        weights=f"--weights {config['weights']}" if config["weights"] else "",
        ties=config["ties"],
    shell:
        f"{RUN} choose {{input}} --frontier {{params.weights}} --ties {{params.ties}} -o {{output:q}} {LOGGED}"
