# The schedules of the headline, measured again in fresh repeats; the strict global one also at other batches and degrees.
# A variant is the same workload at another batch, degree or tensor-core energy, swept and chosen anew.


rule validate:
    input:
        kernels,
        gpu=STUDY.setup or [],
        schedule=STRICT,
    output:
        f"{FOLDER}/measurements/validation/repeat-{{k}}.json",
    log:
        f"logs/{FOLDER}/validate-{{k}}.log",
    wildcard_constraints:
        k=r"\d+",
    group:
        "validate"
    conda:
        "../../envs/pipeline.yaml"
    resources:
        gpu=GPUS,
    shell:
        "python -S -m kernel_dvfs compare --gpu {input.gpu} --schedule {input.schedule} "
        "--first {wildcards.k} --last {wildcards.k} -o {output} 2> {log} || {{ cat {log} >&2; exit 2; }}"


rule validate_schedule:
    input:
        kernels,
        gpu=STUDY.setup or [],
        schedule=f"{FOLDER}/schedules/{{schedule}}.json",
    output:
        f"{FOLDER}/measurements/validation-{{schedule}}/repeat-{{k}}.json",
    log:
        f"logs/{FOLDER}/validate-{{schedule}}-{{k}}.log",
    wildcard_constraints:
        k=r"\d+",
    conda:
        "../../envs/pipeline.yaml"
    resources:
        gpu=GPUS,
    shell:
        "python -S -m kernel_dvfs compare --gpu {input.gpu} --schedule {input.schedule} "
        "--first {wildcards.k} --last {wildcards.k} -o {output} 2> {log} || {{ cat {log} >&2; exit 2; }}"


rule carry_over:
    input:
        kernels,
        gpu=lambda wildcards: STUDY.variants[wildcards.variant].setup,
        schedule=STRICT,
    output:
        f"{FOLDER}/measurements/{{variant}}/{{target}}.json",
    log:
        f"logs/{FOLDER}/carry-over-{{variant}}-{{target}}.log",
    wildcard_constraints:
        variant=r"(batch|tp)-\d+",
        target=r"\w+",
    group:
        "carry"
    conda:
        "../../envs/pipeline.yaml"
    resources:
        gpu=GPUS,
    params:
        last=REPEATS - 1,
    shell:
        "exec python -S -c 'import kernel_dvfs.__main__' compare --gpu {input.gpu} --schedule {input.schedule} "
        "--target {wildcards.target} --last {params.last} --log {log} -o {output}"


rule sweep_variant:
    input:
        gpu=lambda wildcards: STUDY.variants[wildcards.variant].setup,
    output:
        f"{FOLDER}/variants/{{variant}}/profile.parquet",
    log:
        f"logs/{FOLDER}/sweep-{{variant}}.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        pairs=PAIRS,
        auto_repeats=AUTO_REPEATS,
        # passes are chosen anew only where the headline is repeated
        studies=lambda wildcards: ("kernel pass" if wildcards.variant in variants("tensor-energy") else "kernel"),
    shell:
        "python -m kernel_dvfs sweep --gpu {input.gpu} --pairs {params.pairs} --studies {params.studies} "
        "--auto-repeats {params.auto_repeats} -o {output} 2> {log} || {{ cat {log} >&2; exit 2; }}"


rule choose_variant:
    input:
        f"{FOLDER}/variants/{{variant}}/profile.parquet",
    output:
        f"{FOLDER}/variants/{{variant}}/schedule.json",
    log:
        f"logs/{FOLDER}/choose-{{variant}}.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        ties=config["ties"],
    shell:
        "python -m kernel_dvfs choose {input} --scope global --objective waste --slack 0 "
        "--ties {params.ties} -o {output} 2> {log} || {{ cat {log} >&2; exit 2; }}"


rule validate_variant:
    input:
        gpu=lambda wildcards: STUDY.variants[wildcards.variant].setup,
        schedule=f"{FOLDER}/variants/{{variant}}/schedule.json",
    output:
        f"{FOLDER}/variants/{{variant}}/fresh.json",
    log:
        f"logs/{FOLDER}/validate-{{variant}}.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        last=REPEATS - 1,
    shell:
        "python -S -m kernel_dvfs compare --gpu {input.gpu} --schedule {input.schedule} "
        "--last {params.last} -o {output} 2> {log} || {{ cat {log} >&2; exit 2; }}"
