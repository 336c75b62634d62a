"""`kernel-dvfs selection-bias`: is the saving that a choice claims the saving it gives? A simulated GPU, many seeds."""

from kernel_dvfs.cli.numbers import auto_repeats, whole_number
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement.setup import read


def add_arguments(parser) -> None:
    parser.epilog = (
        "example: kernel-dvfs selection-bias --gpu SETUP.json --pairs auto-auto,1470-auto --seeds 20 -o beyond"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file of a simulated GPU")
    parser.add_argument("--pairs", required=True, help="clock pairs CORE-MEM of the grid, separated by commas")
    parser.add_argument("--seeds", default="200", metavar="N", help="studies (default: 200)")
    parser.add_argument("--slack", type=float, default=0.0, metavar="PERCENT", help="tolerated slowdown (default: 0)")
    parser.add_argument("--rounds", default="10", metavar="N", help="of measuring again (default: 10)")
    parser.add_argument("--repeats", default="1", metavar="N", help="measurements in a round (default: 1)")
    parser.add_argument("--margin-z", type=float, default=2.6, metavar="Z", help="default: 2.6")
    parser.add_argument("--auto-repeats", type=auto_repeats, default=10, metavar="N", help="of a sweep (default: 10)")
    parser.add_argument("--fresh", default="10", metavar="N", help="fresh repeats (default: 10)")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="where studies and tables/ go")


def run(options) -> None:
    import pandas as pd

    from kernel_dvfs.files import write_text
    from kernel_dvfs.report.write import write_table
    from kernel_dvfs.studies import sampling as many
    from kernel_dvfs.studies.report import selection_bias
    from kernel_dvfs.studies.selection_bias import HIGH_NOISE, Procedure, arena, study
    from kernel_dvfs.studies.truth import truth

    setup = read(options.gpu)
    if setup.gpu["kind"] != "simulated":
        raise InputError(f"{options.gpu}: gpu kind '{setup.gpu['kind']}' has no known truth; take a simulated GPU")
    seeds = whole_number("--seeds", options.seeds, 1)
    rounds, repeats = whole_number("--rounds", options.rounds), whole_number("--repeats", options.repeats, 1)
    fresh = whole_number("--fresh", options.fresh, 2)
    known = truth(setup, [parse(text, "-") for text in options.pairs.split(",")])
    procedures = [
        Procedure("one sweep", False, 0, 0, 0),
        Procedure("one sweep, replicates pooled", True, 0, 0, 0),
        Procedure("rounds", True, rounds, repeats, 0),
        Procedure("rounds and margin", True, rounds, repeats, options.margin_z),
    ]
    noises = {"as the GPU's spec": many.noise_of(setup, known), HIGH_NOISE: many.high_noise(setup, known)}
    rows = []
    for noise_name, noise in noises.items():
        for how in procedures:
            own = arena(known, how.tied)
            for seed in range(seeds):
                found = study(own, noise, how, options.slack / 100, options.auto_repeats, fresh, seed)
                if found is None:
                    raise InputError(f"--slack {options.slack:g}: no choice keeps the limit; raise it")
                rows.append({"noise": noise_name, "procedure": how.name, "seed": seed, **found.flat()})
    studies = pd.DataFrame(rows)
    write_text(f"{options.output}/selection_bias_studies.csv", studies.to_csv(index=False, float_format="%.5g"))
    table = selection_bias.make(studies, options.slack)
    write_table(
        table,
        options.output,
        "selection_bias",
        selection_bias.CAPTION,
        f"simulated {setup.gpu['name']}, {setup.workload['name']}",
        ("csv", "md"),
    )
