# Records pooled into one profile, or a table of measurements read into one.


rule profile:
    input:
        rules.measurements.input,
        f"{FOLDER}/profile.parquet",


if MEASURED_HERE:

    rule pool_records:
        input:
            SWEPT,
            lambda wildcards: planned_records(all_rounds()),
            gpu=STUDY.setup,
            rounds=lambda wildcards: [round_file(number) for number in all_rounds()],
        output:
            f"{FOLDER}/profile.parquet",
        log:
            f"logs/{FOLDER}/profile.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            records=lambda wildcards, output: Path(output[0]).parent / "measurements",
            pairs=GRID,
            auto_repeats=AUTO_REPEATS,
        shell:
            "python -m kernel_dvfs profile --gpu {input.gpu} --records {params.records} "
            "--pairs={params.pairs} --auto-repeats {params.auto_repeats} --rounds {input.rounds} -o {output} 2> {log} || {{ cat {log} >&2; exit 2; }}"

else:

    rule import_table:
        input:
            STUDY.table,
        output:
            f"{FOLDER}/profile.parquet",
        log:
            f"logs/{FOLDER}/profile.log",
        conda:
            "../../envs/pipeline.yaml"
        params:
            options=studies.import_options(config["gpu"]),
        shell:
            # notices and errors belong in front of the user as well as in the log
            "python -m kernel_dvfs import {input:q} {params.options} -o {output} 2>&1 | tee {log} >&2"
