# Every target at every clock pair: one job, one record.


# python -S: a simulated point needs no site-packages; -c import: as `-m kernel_dvfs`, without the cost of runpy; --log:
# an error is logged as well as shown, without a shell that waits. Together they halve the time of a job.
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
        "exec python -S -c 'import kernel_dvfs.__main__' measure --gpu {input.gpu} "
        "--target {wildcards.study}/{wildcards.target} --clocks {wildcards.core},{wildcards.mem} "
        "--repeat {wildcards.repeat} --log {log} -o {output}"
