"""`kernel-dvfs compare`: auto, chosen, chosen, auto for one kernel or all, in fresh campaigns."""

from kernel_dvfs.cli import quick
from kernel_dvfs.cli.numbers import whole_number
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json
from kernel_dvfs.gpu.clocks import BASELINE, Pair
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.measurement.target import Target, parse

OPTIONS = (
    quick.Option("--gpu", None, "SETUP", "a setup file"),
    quick.Option("--schedule", None, "S.json", "the chosen clocks"),
    quick.Option("--target", "", "ID", "one kernel; without it, all"),
    quick.Option("--first", "0", "N", "number of the first repeat"),
    quick.Option("--last", "9", "N", "number of the last repeat"),
    quick.Option("-o", None, "R.json", "where the record goes"),
)


def add_arguments(parser) -> None:
    parser.epilog = (
        "example: kernel-dvfs compare --gpu SETUP.json --schedule kernel-global-waste-slack0.json -o fresh.json"
    )
    quick.add_arguments(parser, OPTIONS)


def run(options) -> None:
    setup = read(options.gpu)
    chosen = _chosen(options.schedule)
    if options.target:
        targets = [parse(setup, f"kernel/{options.target}")]
    else:
        targets = [Target("kernel", name) for name in setup.targets["kernel"]]
    repeats = range(whole_number("--first", options.first), whole_number("--last", options.last) + 1)
    comparisons = []
    for target in targets:
        bench = Bench(setup, target)
        # a kernel that the schedule does not know (another bias split) stays at auto
        pair = chosen.get(target.name, BASELINE)
        comparisons += [bench.compare(pair, repeat) for repeat in repeats]
    record.write_comparison(options.output, setup, bench.device, options.schedule, comparisons)


def _chosen(path: str) -> dict:
    try:
        targets = read_json(path)["targets"]
        return {name: Pair(clocks["core_mhz"], clocks["mem_mhz"]) for name, clocks in targets.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"schedule {path}: not a schedule ({error}); make it with kernel-dvfs choose") from None
