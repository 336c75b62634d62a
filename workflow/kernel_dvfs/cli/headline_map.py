"""`kernel-dvfs study headline-map`: the strict saving over what nobody has measured. A simulated GPU, no noise."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli import json_object
from kernel_dvfs.cli.arguments import one_of
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement.setup import read

_EXAMPLE = '{"tensor_energy_pj": [0.5, 2.2], "gemm_traffic": [1, 4], "auto_core_mhz": [1950]}'


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = (
        "example: kernel-dvfs study headline-map --gpu SETUP.json --pairs auto-auto,1470-auto "
        f"--axes '{_EXAMPLE}' -o headline_map.csv"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file of a simulated GPU")
    parser.add_argument("--pairs", required=True, help="clock pairs CORE-MEM of the grid, separated by commas")
    parser.add_argument("--axes", required=True, metavar="JSON", help=f"the values on each axis, e.g. {_EXAMPLE}")
    parser.add_argument(
        "--ties", **one_of(("tied", "untied")), default="tied", help="copies of a launch (default: tied)"
    )
    parser.add_argument("-o", "--output", required=True, metavar="CSV")


def run(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    import pandas as pd

    from kernel_dvfs.files import write_text
    from kernel_dvfs.search.headline_map import headline_map

    pairs = [parse(text, "-") for text in options.pairs.split(",")]
    rows = headline_map(read(options.gpu), pairs, _axes(options.axes), options.ties)
    write_text(options.output, pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))


def _axes(text: str) -> dict[str, list[float]]:
    given = json_object("--axes", text, _EXAMPLE)
    good = all(
        isinstance(each, list) and all(isinstance(one, (int, float)) and one > 0 for one in each)
        for each in given.values()
    )
    if not good:
        raise InputError(f"--axes {text}: not lists of positive numbers; expected {_EXAMPLE}")
    return given
