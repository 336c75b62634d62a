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
        params:
            campaign=campaign_of,
        shell:
            "if [[ -e .snakemake/kernel-dvfs-ahead/{output} ]]; then "
            "exec mv .snakemake/kernel-dvfs-ahead/{output} {output}; fi; "
            "exec python -S -c 'import kernel_dvfs.__main__' measure --gpu {input.gpu} "
            "--target {wildcards.study}/{wildcards.target} --clocks {wildcards.core},{wildcards.mem} "
            "--campaign {params.campaign} --repeat {wildcards.repeat} --log {log} -o {output}"

else:

    # a rule a clock pair, in descending priority: all targets at one pair, then the next pair; what rounds ask for later
    # is another rule a pair, in the same order
    swept = [(pair, repeat, str(repeat)) for pair, repeat in STUDY.points]
    later = [(pair, "again", again(pair)) for pair in STUDY.pairs] if IN_ROUNDS else []
    for rank, (pair, name, repeats) in enumerate(swept + later):

        rule:
            name:
                f"measure_{pair[0]}_{pair[1]}_r{name}"
            input:
                kernels,
                gpu=STUDY.setup,
            output:
                f"{FOLDER}/measurements/{{study}}/{{target}}/{studies.label(pair)}/r{{repeat}}.json",
            log:
                f"logs/{FOLDER}/measure/{{study}}-{{target}}-{studies.label(pair)}-r{{repeat}}.log",
            wildcard_constraints:
                study="kernel|pass",
                target=r"\w+",
                repeat=repeats,
            priority: len(swept + later) - rank
            conda:
                "../../envs/pipeline.yaml"
            resources:
                gpu=GPUS,
                slurm_extra=from_outside(pair),
            params:
                clocks=",".join(map(str, pair)),
                campaign=partial(campaign_of, pair=pair),
            shell:
                "exec python -S -c 'import kernel_dvfs.__main__' measure --gpu {input.gpu} "
                "--target {wildcards.study}/{wildcards.target} --clocks {params.clocks} "
                "--campaign {params.campaign} --repeat {wildcards.repeat} --log {log} -o {output}"

    # whether auto is the same as locked at the highest clocks, which every percentage takes it not to be
    rule compare_locked:
        input:
            kernels,
            gpu=STUDY.setup,
        output:
            f"{FOLDER}/measurements/locked/{{target}}.json",
        log:
            f"logs/{FOLDER}/locked-{{target}}.log",
        wildcard_constraints:
            target=r"\w+",
        conda:
            "../../envs/pipeline.yaml"
        resources:
            gpu=GPUS,
        params:
            clocks=",".join(map(str, probes.highest(setup_files.read(STUDY.setup).gpu["clocks"]))) if LOCKED else "",
            last=layout.LOCKING_REPEATS - 1,
        shell:
            "exec python -S -c 'import kernel_dvfs.__main__' compare --gpu {input.gpu} --clocks {params.clocks} "
            "--target {wildcards.target} --last {params.last} --log {log} -o {output}"


# on a cluster, measurement jobs of a real GPU only ask the one job of Slurm that holds it, and wait
if REAL and SLURM:
    workflow.localrules("validate", "carry_over", "compare_locked")
    workflow.localrules(*(f"measure_{core}_{mem}_r{name}" for (core, mem), name, _ in swept + later))
