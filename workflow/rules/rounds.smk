# What is measured beyond one sweep, in rounds: each round's plan follows from all records so far. An empty plan ends it.


if IN_ROUNDS and not FINISHED:

    checkpoint plan_round:
        input:
            SWEPT,
            lambda wildcards: planned_records(before(wildcards)),
            gpu=STUDY.setup,
            earlier=lambda wildcards: [round_file(number) for number in before(wildcards)],
        output:
            f"{FOLDER}/rounds/{{round}}.json",
        log:
            f"logs/{FOLDER}/plan-round-{{round}}.log",
        wildcard_constraints:
            round=r"[1-9]\d*",
        conda:
            "../../envs/pipeline.yaml"
        params:
            folder=subpath(output[0], ancestor=2),
            options=json.dumps(round_options()),
        shell:
            "python -m kernel_dvfs plan-round --gpu {input.gpu} --records {params.folder}/measurements "
            "--options {params.options:q} --earlier {input.earlier} -o {output} 2> {log} || {{ cat {log} >&2; exit 2; }}"


rule measurements:
    input:
        # records first-class, of every target: a deleted one is noticed, and rounds are asked for although there is a
        # profile already
        SWEPT,
        lambda wildcards: planned_records(all_rounds()),
