"""`kernel-dvfs measure`: what a measurement job runs. Imports only what a simulated point needs."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli.arguments import REPEAT
from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement import job, target
from kernel_dvfs.measurement.campaign import SWEEP
from kernel_dvfs.measurement.setup import Setup, read

# the option of every command that measures
SESSION = "of a real GPU: one measuring process for all of a name, another one for the next name"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs measure --gpu rtx_3080_ti --target forward_gelu --clocks 1470,auto -o r0.json"
    parser.add_argument(
        "--gpu", required=True, metavar="SETUP", help="a setup file, the name of a simulated GPU, or nvml[:UUID|INDEX]"
    )
    parser.add_argument("--target", required=True, metavar="ID", help="kernel id, kernel/ID or pass/NAME")
    parser.add_argument("--clocks", required=True, metavar="CORE,MEM", help="MHz or auto, each")
    parser.add_argument(
        "--campaign", default=SWEEP, metavar="NAME", help=f"what the measurement is for (default: {SWEEP})"
    )
    parser.add_argument("--repeat", type=REPEAT, default=0, metavar="N", help="number of the repeat (default: 0)")
    parser.add_argument("--session", default="", metavar="NAME", help=SESSION)
    parser.add_argument(
        "--config",
        default="",
        metavar="FILE",
        help="workload and protocol if --gpu is a name (default: config.yaml, or as shipped)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="R.json", help="where the record goes")


def run(options: argparse.Namespace) -> None:
    if options.gpu.endswith(".json"):
        _measure(read(options.gpu), options.gpu, options)
    else:
        _measure_as_configured(options)


def _measure(setup: Setup, path: str, options: argparse.Namespace) -> None:
    what = target.parse(setup, options.target)
    pair = parse(options.clocks)
    job.measure(setup, path, what, pair, options.campaign, options.repeat, options.output, session=options.session)


def _measure_as_configured(options: argparse.Namespace) -> None:
    from contextlib import nullcontext
    from tempfile import TemporaryDirectory

    from kernel_dvfs import shipped
    from kernel_dvfs.plan.config import check, load
    from kernel_dvfs.plan.study import plan

    content = load(shipped.config_or(options.config)) | {"gpu": options.gpu}
    check(content, str(shipped.SCHEMA))
    # the process that measures a real GPU outlives this one, reads the setup and keeps files beside it
    is_real = options.gpu.partition(":")[0] == "nvml"
    with nullcontext("results") if is_real else TemporaryDirectory() as folder:
        planned = plan(content, folder).setup
        assert planned, "only tables have no setup"
        path = planned.write()
        _measure(read(path), path, options)
