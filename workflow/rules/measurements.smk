# Every target at every clock pair: one job, one record.


# python -S: a simulated point needs no site-packages, and neither does a client that asks for a real one; -c import: as
# `-m kernel_dvfs`, without the cost of runpy; --log: an error is logged as well as shown, without a shell that waits.
# Together they halve the time of a job. What has been measured ahead (start() in common.smk) is only moved.
if not REAL:

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
        group:
            "sweep"
        conda:
            "../../envs/pipeline.yaml"
        resources:
            gpu=GPUS,
        shell:
            "if [[ -e .snakemake/kernel-dvfs-ahead/{output} ]]; then "
            "exec mv .snakemake/kernel-dvfs-ahead/{output} {output}; fi; "
            "exec python -S -c 'import kernel_dvfs.__main__' measure --gpu {input.gpu} "
            "--target {wildcards.study}/{wildcards.target} --clocks {wildcards.core},{wildcards.mem} "
            "--repeat {wildcards.repeat} --log {log} -o {output}"

else:

    # a rule a clock pair, in descending priority: all targets at one pair, then the next pair
    for rank, (pair, repeat) in enumerate(STUDY.points):

        rule:
            name:
                f"measure_{pair[0]}_{pair[1]}_r{repeat}"
            input:
                KERNELS,
                gpu=STUDY.setup,
            output:
                f"{FOLDER}/measurements/{{study}}/{{target}}/{studies.label(pair)}/r{repeat}.json",
            log:
                f"logs/{FOLDER}/measure/{{study}}-{{target}}-{studies.label(pair)}-r{repeat}.log",
            wildcard_constraints:
                study="kernel|pass",
                target=r"\w+",
            priority: len(STUDY.points) - rank
            conda:
                "../../envs/pipeline.yaml"
            resources:
                gpu=GPUS,
                slurm_extra=from_outside(pair),
            params:
                clocks=",".join(map(str, pair)),
                repeat=repeat,
            shell:
                "exec python -S -c 'import kernel_dvfs.__main__' measure --gpu {input.gpu} "
                "--target {wildcards.study}/{wildcards.target} --clocks {params.clocks} "
                "--repeat {params.repeat} --log {log} -o {output}"


# on a cluster, measurement jobs of a real GPU only ask the one job of Slurm that holds it, and wait
if REAL and SLURM:
    workflow.localrules("validate", "carry_over", *(f"measure_{core}_{mem}_r{k}" for (core, mem), k in STUDY.points))
