"""`kernel-dvfs measure`: what a measurement job runs. Imports nothing that a simulated point does not need."""

from kernel_dvfs.cli import quick
from kernel_dvfs.cli.numbers import whole_number
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement import job, target
from kernel_dvfs.measurement.campaign import SWEEP
from kernel_dvfs.measurement.setup import read

OPTIONS = (
    quick.Option("--gpu", None, "SETUP", "a setup file, the name of a simulated GPU, or nvml[:UUID|INDEX]"),
    quick.Option("--target", None, "ID", "kernel id, kernel/ID or pass/NAME"),
    quick.Option("--clocks", None, "CORE,MEM", "MHz or auto, each"),
    quick.Option("--campaign", SWEEP, "NAME", "what the measurement is for"),
    quick.Option("--repeat", "0", "N", "number of the repeat"),
    quick.Option("--config", "config.yaml", "FILE", "workload and protocol where --gpu is a name"),
    quick.Option("--log", "", "FILE", "where an error is written as well"),
    quick.Option("-o", None, "R.json", "where the record goes"),
)


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs measure --gpu rtx_3080_ti --target forward_gelu --clocks 1470,auto -o r0.json"
    quick.add_arguments(parser, OPTIONS)


def run(options) -> None:
    if options.gpu.endswith(".json"):
        _measure(read(options.gpu), options.gpu, options)
    else:
        _measure_as_configured(options)


def _measure(setup, path: str, options) -> None:
    what = target.parse(setup, options.target)
    repeat = whole_number("--repeat", options.repeat)
    pair = parse(options.clocks)
    job.measure(setup, path, what, pair, options.campaign, repeat, options.output)


def _measure_as_configured(options) -> None:
    from pathlib import Path
    from tempfile import TemporaryDirectory

    import kernel_dvfs
    from kernel_dvfs.plan.config import check
    from kernel_dvfs.plan.study import load, plan

    content = load(options.config) | {"gpu": options.gpu}
    # an installed library comes without the workflow, and so without its schema
    schema = Path(kernel_dvfs.__file__).parents[1] / "schemas" / "config.schema.yaml"
    if schema.is_file():
        check(content, str(schema))
    with TemporaryDirectory() as folder:
        try:
            path = plan(content, folder).setup
        except KeyError as missing:
            raise InputError(
                f"configuration {options.config}: key {missing} is missing; see the shipped config.yaml"
            ) from None
        _measure(read(path), path, options)
