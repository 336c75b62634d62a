# Guided search beside other ways to search, on the simulated GPU of this study: what each finds and what it takes.

if STUDY.kind == "simulated":
    BEYOND += [
        f"{FOLDER}/beyond/guided_search.csv",
        f"{FOLDER}/beyond/guided_search.md",
    ]

    rule guided_study:
        input:
            gpu=STUDY.setup,
        output:
            csv=f"{FOLDER}/beyond/guided_search.csv",
            md=f"{FOLDER}/beyond/guided_search.md",
        log:
            f"logs/{FOLDER}/guided-study.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            pairs=PAIRS,
            seeds=config["guided_study"]["seeds"],
            budget=config["guided_study"]["budget_percent"],
            slacks=config["guided_study"]["slacks_percent"],
            without="" if config["guided_study"]["bayesian"] else "--without bayesian",
        shell:
            "python -m kernel_dvfs guided-study --gpu {input.gpu} --pairs {params.pairs} --seeds {params.seeds} "
            "--budget {params.budget} --slack {params.slacks} {params.without} -o {output.csv} "
            "2> {log} || {{ cat {log} >&2; exit 2; }}"
