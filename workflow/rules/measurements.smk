# Every target at every clock pair: one job, one record.


# python -S: a simulated point needs no site-packages; -c import: as `-m kernel_dvfs`, without the cost of runpy.
# Together they halve the time of a job. Here as in every rule, a failed job's one line of error is shown as well as
# logged.
rule measure:
    input:
        gpu=STUDY.setup or [],
    output:
        f"{FOLDER}/measurements/{{study}}/{{target}}/{{core}}-{{mem}}/r{{repeat}}.json",
    log:
        f"logs/{FOLDER}/measure/{{study}}-{{target}}-{{core}}-{{mem}}-r{{repeat}}.log",
    wildcard_constraints:
        study="kernel|pass",
        target=r"\w+",
        core=r"auto|\d+",
        mem=r"auto|\d+",
        repeat=r"\d+",
    conda:
        "../../envs/pipeline.yaml"
    resources:
        gpu=GPUS,
    shell:
        "python -S -c 'import kernel_dvfs.__main__' measure --gpu {input.gpu} "
        "--target {wildcards.study}/{wildcards.target} --clocks {wildcards.core},{wildcards.mem} "
        "--repeat {wildcards.repeat} -o {output} 2> {log} || {{ cat {log} >&2; exit 2; }}"
