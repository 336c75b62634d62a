"""`kernel-dvfs profile`: the records of a sweep, read, checked and pooled."""

from kernel_dvfs.cli.numbers import auto_repeats
from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.profile import aggregate


def add_arguments(parser) -> None:
    parser.epilog = (
        "example: kernel-dvfs profile --gpu SETUP.json --records measurements "
        "--pairs auto-auto,1470-auto -o profile.parquet"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="the setup that the records were measured under")
    parser.add_argument("--records", required=True, metavar="DIR", help="folder with kernel/ and pass/")
    parser.add_argument("--pairs", required=True, help="clock pairs CORE-MEM, separated by commas")
    parser.add_argument(
        "--auto-repeats", type=auto_repeats, metavar="N", default=10, help="records of auto-auto (default: 10)"
    )
    parser.add_argument("-o", "--output", required=True, metavar="P.parquet")


def run(options) -> None:
    pairs = [parse(text, "-") for text in options.pairs.split(",")]
    aggregate.from_records(read(options.gpu), options.records, pairs, options.auto_repeats, options.output)
