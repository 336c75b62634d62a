# What slow changes of clocks leave of an iteration's saving, from the study's own profile.

if MEASURED_HERE and CHOSEN_HERE:
    BEYOND += [
        *(f"{FOLDER}/beyond/tables/switching.{form}" for form in ("csv", "md")),
        *(f"{FOLDER}/beyond/tables/switching_known.{form}" for form in ("csv", "md")),
        *(f"{FOLDER}/beyond/figures/switching.{form}" for form in layout.FIGURE_FORMATS),
    ]

    rule switching_study:
        input:
            f"{FOLDER}/profile.parquet",
        output:
            report(
                multiext(f"{FOLDER}/beyond/tables/switching", ".csv", ".md"),
                caption="../report/switching.rst",
                category="Beyond the paper",
            ),
            multiext(f"{FOLDER}/beyond/tables/switching_known", ".csv", ".md"),
            report(
                multiext(f"{FOLDER}/beyond/figures/switching", ".pdf", ".png"),
                caption="../report/switching.rst",
                category="Beyond the paper",
            ),
        log:
            f"logs/{FOLDER}/switching-study.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            folder=subpath(output[0], ancestor=2),
            latencies=config["switching_study"]["latency_s"],
            jitters=config["switching_study"]["jitter"],
            slack=config["slack_percent"],
            stall=(
                ""
                if config["switching_study"]["stall_w"] is None
                else f"--stall-w {config['switching_study']['stall_w']}"
            ),
        shell:
            "python -m kernel_dvfs switching-study {input} --latencies {params.latencies} --jitters {params.jitters} "
            "--slack {params.slack} {params.stall} -o {params.folder} 2> {log} || {{ cat {log} >&2; exit 2; }}"
