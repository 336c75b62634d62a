# Studies beyond the paper, on simulated GPUs whose truth is known. Each adds its files to BEYOND.
BEYOND = []

if STUDY.kind == "simulated":
    BEYOND += [
        f"{FOLDER}/beyond/selection_bias_studies.csv",
        f"{FOLDER}/beyond/tables/selection_bias.csv",
        f"{FOLDER}/beyond/tables/selection_bias.md",
    ]

    rule selection_bias:
        input:
            gpu=STUDY.setup,
        output:
            f"{FOLDER}/beyond/selection_bias_studies.csv",
            report(
                multiext(f"{FOLDER}/beyond/tables/selection_bias", ".csv", ".md"),
                caption="../report/selection_bias.rst",
                category="Beyond the paper",
            ),
        log:
            f"logs/{FOLDER}/selection-bias.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            folder=subpath(output[0], parent=True),
            pairs=PAIRS,
            seeds=config["selection_bias"]["seeds"],
            # the procedure of `refine`; off, the study still shows what it would be worth
            rounds=config["refine"]["rounds"] or 10,
            repeats=config["refine"]["repeats"],
            margin_z=config["refine"]["margin_z"],
            auto_repeats=AUTO_REPEATS,
            fresh=REPEATS,
        shell:
            "python -m kernel_dvfs selection-bias --gpu {input.gpu} --pairs {params.pairs} --seeds {params.seeds} "
            "--rounds {params.rounds} --repeats {params.repeats} --margin-z {params.margin_z} "
            "--auto-repeats {params.auto_repeats} --fresh {params.fresh} -o {params.folder} "
            "2> {log} || {{ cat {log} >&2; exit 2; }}"


rule beyond:
    input:
        lambda wildcards: BEYOND,
