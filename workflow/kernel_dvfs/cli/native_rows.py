"""`kernel-dvfs study native-rows`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli import tell
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.native import agreement
from kernel_dvfs_clocks.files import write_json


def add_arguments(parser: ArgumentParser) -> None:
    """Describe the options to an argparse parser."""
    parser.epilog = "example: kernel-dvfs study native-rows --gpu SETUP.json -o native_rows.json"
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file of a model's workload")
    parser.add_argument("--results", default="results", metavar="DIR", help="where native/ is (default: results)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="what was compared, as JSON")


def run(options: Namespace) -> None:
    """Run the command. Raises InputError naming a row that is counted otherwise; none where nothing is built."""
    setup = read(options.gpu)
    works = {name: about["work"] for name, about in setup.targets["kernel"].items()}
    rows = agreement.of_study(options.results, setup.workload, setup.gpu.get("spec", setup.gpu), works)
    write_json(options.output, rows)
    tell(f"native layer: {agreement.sentence(rows)}")
