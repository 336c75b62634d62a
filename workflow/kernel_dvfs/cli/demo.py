"""`kernel-dvfs demo`."""

from __future__ import annotations

import sys
import time
import webbrowser
from argparse import ArgumentParser, Namespace
from pathlib import Path

from kernel_dvfs import api
from kernel_dvfs.cli.arguments import whole
from kernel_dvfs.profile.step import write_shipped_step
from kernel_dvfs.report.page.study_page import make
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_sealed, write_text


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = "example: kernel-dvfs demo --gpu h200_sxm"
    parser.add_argument("--gpu", default="rtx_3080_ti", metavar="NAME", help="a simulated GPU (default: rtx_3080_ti)")
    parser.add_argument(
        "--repeats",
        type=whole(1, 100),
        default=5,
        metavar="N",
        help="how often the choice is measured again (default: 5)",
    )
    parser.add_argument("--step", action="store_true", help="instead, a PyTorch step measured on a real H200")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="default: demo, demo-step")
    parser.add_argument("--open", action="store_true", help="open the page")


def run(options: Namespace) -> None:
    """Say each step and its answer; leave profile.parquet, schedule.json and report.html."""
    page = (_demo_of_step if options.step else _demo_of_study)(
        options, Path(options.output or ("demo-step" if options.step else "demo"))
    )
    if options.open:
        webbrowser.open(page.resolve().as_uri())


def _demo_of_study(options: Namespace, folder: Path) -> Path:
    began = time.monotonic()
    sweep = api.simulate(options.gpu, folder)
    print(f"measured (simulated): {sweep.kernels} kernels at {sweep.pairs} clock pairs -> {sweep.profile}")
    schedule = api.by_clock(sweep, say=_in_one_line)[0]
    _in_one_line("")
    print(f"chosen: {api.summary(schedule)}")
    checked = api.validate(sweep, schedule, options.repeats)
    print(checked.words())
    write_sealed(folder / "schedule.json", schedule, {"profile": folder / api.BY_CLOCK})
    page = api.write_page(folder / "report.html", folder / api.BY_CLOCK, schedule, checked)
    print(f"written: {folder / 'schedule.json'} and the page {page} ({time.monotonic() - began:.0f} s in all)")
    print("next: `kernel-dvfs devices` says what your own GPU could do")
    return page


def _in_one_line(progress: str) -> None:
    """How far it is, over what was said before; nothing where nobody watches."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{progress.partition(';')[0]}", end="", file=sys.stderr, flush=True)


def _demo_of_step(options: Namespace, folder: Path) -> Path:
    """Write the page of a step that was captured and measured once, as the study of a real one shows it."""
    kernels = write_shipped_step(folder)
    # drawn, or made of records: nothing of a demo
    html, missing = make(folder, left_out=("baseline", "locking", "fig5_kernels", "step_plane"))
    if missing:
        raise InputError(f"{folder}: {'; '.join(map(str, missing))}; delete the folder and run again")
    page = folder / "report.html"
    write_text(page, html)
    print("measured on a real NVIDIA H200 at its own clocks, 2026-11-22: two Llama-style layers, forward and backward")
    for row in kernels[:3]:
        share = f"{row['energy_share_percent']:.1f} % of all kernels' energy"
        print(f"  {row['name']}: {row['launches']} x {row['energy_mj']:.0f} mJ, {share}")
    print(f"written: the page {page}")
    print("next, with a GPU, no root needed: kernel-dvfs study train.py:make_step")
    return page
