"""`kernel-dvfs serving-experiment`: one experiment of a serving study."""


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs serving-experiment systems results/serving/sim-h100-sxm-llama2-70b/mine"
    parser.add_argument("name", metavar="NAME", help="systems, loads, misprediction, sweeps, hierarchy or week")
    parser.add_argument("folder", metavar="FOLDER", help="of the study; written to its experiments/")


def run(options) -> None:
    import sys
    from pathlib import Path

    from kernel_dvfs.errors import InputError
    from kernel_dvfs.files import write_json
    from kernel_dvfs.serving.experiments import EXPERIMENTS
    from kernel_dvfs.serving.outcome import lines
    from kernel_dvfs.serving.study import ServingStudy

    if options.name not in EXPERIMENTS:
        raise InputError(f"no experiment '{options.name}'; allowed: {', '.join(EXPERIMENTS)}")
    study = ServingStudy(options.folder)
    found = EXPERIMENTS[options.name](study)
    write_json(Path(options.folder) / "experiments" / f"{options.name}.json", found)
    for each in found:
        for line in lines(each) if "system" in each else []:
            print(f"note: {line}", file=sys.stderr)
