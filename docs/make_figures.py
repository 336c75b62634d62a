"""Draw the pictures of docs/figures: python docs/make_figures.py [NAME ...] [--study DIR] [--pipeline DIR]

All are drawn from results that are kept in experiments/results, so that anyone can draw them again. --study names a
finished default study (results/sim-rtx-3080-ti/gpt3-xl-b40-tp1), --pipeline one of a training pipeline: their tables
are kept first. What needs more of a study than is kept is drawn only where that study is named.

Each picture says in small print what it was drawn from, as a digest. Its metadata hold that digest in full and that of
the code that drew it; tests/docs/test_figures_fresh.py compares both with what is here, and so says what is stale.

Another picture is another entry of PICTURES: the files whose numbers it shows, the code that it is drawn by, and a
function that writes it. `screenshot` is such a function for a page.

What a page of docs/ says in numbers of the kept default study stands between `<!-- NAME -->` and `<!-- end of NAME -->`
there, is an entry of PAGES, and is written anew whenever pictures are drawn.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT)]
FOLDER = ROOT / "docs/figures"
RESULTS = ROOT / "experiments/results"
INPUTS, CODE = "Inputs", "Code"  # keys of a picture's metadata
_SHOWN = 10  # digits of a digest in small print
_SMALL_PT = 5  # of figures; screenshots have no points
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class CannotDraw(Exception):
    """Why a picture cannot be drawn here."""


@dataclass(frozen=True)
class Picture:
    """A file of docs/figures."""

    inputs: tuple[str, ...]  # whose numbers it shows: files of experiments/results
    code: tuple[str, ...]  # what draws it: files of the repository
    draw: Callable[[Path | None, Path], None]  # (the finished study, or None; the PNG to write)
    needs: str = ""  # name in STUDIES: it is drawn from that study itself, not from what is kept of it


# --- what is kept of studies ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """A study of which some files are kept."""

    folder: str  # in experiments/results
    files: dict[str, str]  # name there -> path in the study
    about: Callable[[Path], dict]  # study -> what its study.json says


def _about_default(study: Path) -> dict:
    from kernel_dvfs.report.results import Results

    results = Results(study)
    return {
        "subject": results.subject,
        "workload": results.workload["name"],
        "setup": results.workload["setup"],
        "profile_sha256": digest([study / "profile.parquet"]),
    }


def _about_pipeline(study: Path) -> dict:
    from kernel_dvfs_pipeline.study import KEYS, PipelineStudy

    own = PipelineStudy(study)
    # two of its pictures show more than the tables that are kept
    drawn = [study / "stages.csv"]
    for microbatches in own["microbatches"]:
        drawn += [own.solved(microbatches) / name for name in _OF_PIPELINE]
    return {key: own[key] for key in ("subject", "name", *KEYS)} | {"drawn_sha256": digest(drawn)}


_OF_PIPELINE = ("frontier.csv", "plans/all-max.json", "plans/one-clock.json")
_TABLES = ("claims", "deployable", "headline", "relaxed", "strategies", "validation")
STUDIES = {
    "study": Kept(
        "default_study",
        {f"{name}.csv": f"tables/{name}.csv" for name in _TABLES},
        _about_default,
    ),
    "pipeline": Kept(
        "pipeline_study",
        {f"{name}.csv": f"mb12/{name}.csv" for name in ("methods", "runs")},
        _about_pipeline,
    ),
}


def keep(name: str, study: Path) -> None:
    """Keep of a finished study what pictures and pages show: all of it or, where something is missing, nothing. Raises
    CannotDraw."""
    from kernel_dvfs_clocks.errors import InputError

    kept = STUDIES[name]
    missing = [source for source in kept.files.values() if not (study / source).is_file()]
    if missing:
        raise CannotDraw(f"--{name} {study}: no finished study, it lacks {', '.join(missing)}")
    try:
        about = kept.about(study)
    except InputError as error:
        raise CannotDraw(f"--{name}: {error}") from None
    folder = RESULTS / kept.folder
    folder.mkdir(exist_ok=True)
    for target, source in kept.files.items():
        shutil.copyfile(study / source, folder / target)
    (folder / "study.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")


# --- how each is drawn ------------------------------------------------------------------------------------------------


def _figure(name: str) -> Callable[[Path | None, Path], None]:
    """A figure of the default study, drawn from what is kept of it."""

    def draw(_: Path | None, path: Path) -> None:
        import pandas as pd

        from kernel_dvfs.report.figures import OUTPUTS

        folder = RESULTS / STUDIES["study"].folder
        about = json.loads((folder / "study.json").read_text("utf-8"))

        def table(name: str) -> Any:
            return pd.read_csv(folder / f"{name}.csv")

        output = OUTPUTS["figure", name]
        results = SimpleNamespace(
            procedure=output.procedure,
            subject=about["subject"],
            workload={"name": about["workload"]},
            table=table,
        )
        _write(output.make(results), output.captioned, about["subject"], path)

    return draw


def _pipeline(name: str) -> Callable[[Path | None, Path], None]:
    """A figure of a pipeline study."""

    def draw(study: Path | None, path: Path) -> None:
        from kernel_dvfs_pipeline.report.figures import OUTPUTS
        from kernel_dvfs_pipeline.study import PipelineStudy

        assert study is not None
        own = PipelineStudy(study)
        output = OUTPUTS["figure", name]
        _write(output.make(own), output.captioned, own.subject, path)

    return draw


def _kernels_h200(_: Path | None, path: Path) -> None:
    from kernel_dvfs.cli import main
    from kernel_dvfs.report.figures import OUTPUTS
    from kernel_dvfs.report.results import Results

    with tempfile.TemporaryDirectory() as folder:
        words = ["import", str(RESULTS / "auto_only_h200.csv"), "-o", f"{folder}/profile.parquet"]
        if main.main(words):
            raise CannotDraw("auto_only_h200.csv was refused")
        results = Results(folder)
        output = OUTPUTS["figure", "fig5_kernels"]
        _write(output.make(results), output.captioned, results.subject, path)


def _switching(_: Path | None, path: Path) -> None:
    """What is left on the default board where a change takes time, of experiments/results/deployable.csv."""
    import pandas as pd

    frame = pd.read_csv(RESULTS / "deployable.csv")
    about = json.loads((RESULTS / STUDIES["study"].folder / "study.json").read_text("utf-8"))
    caption = "Change of energy over the median latency of a change, measured again; no time lost"
    own = frame[frame.gpu == about["subject"]]
    _write(switching_figure(own, f"{about['subject']}, {about['workload']}"), caption, about["subject"], path)


def switching_figure(frame: Any, subject: str) -> Any:
    """frame: rows of one board, of experiments/searches/deployable.py; the ways without latencies are lines across."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.layout import FREE, LAUNCH, PASS, RUN
    from kernel_dvfs.report import style
    from kernel_dvfs.report.words import WAYS

    energy = "fresh_energy_change_percent"
    timed = frame[frame.way.isin([PASS, LAUNCH]) & (frame.core_stall_ms == 0.1)]
    latencies = sorted(set(timed.latency_ms))
    labels = [f"{each:g}, {timed.mem_latency_ms[timed.latency_ms == each].iloc[0]:g}" for each in latencies]
    timed = timed.assign(
        place=timed.latency_ms.map(latencies.index), way=pd.Categorical(timed.way, [PASS, LAUNCH], ordered=True)
    )
    whole = frame.drop_duplicates("way").set_index("way")[energy]
    timed = timed.assign(way=timed.way.cat.rename_categories({way: WAYS[way] for way in (PASS, LAUNCH)}))
    across = pd.DataFrame({"change": [whole[FREE], whole[RUN]], "words": [FREE, RUN], "place": len(latencies) - 1})
    least, most = -timed[energy].max(), -timed[energy].min()
    ends = f"{least:.1f} to {most:.1f}" if round(least, 1) < round(most, 1) else f"{most:.1f}"
    return (
        p9.ggplot(timed, p9.aes("place", energy))
        + p9.geom_hline(p9.aes(yintercept="change"), across, linetype="dotted", size=0.5)
        + p9.geom_text(p9.aes(y="change", label="words"), across, ha="right", va="bottom", size=style.SMALL_PT)
        + p9.geom_errorbar(
            p9.aes(ymin="fresh_energy_low_percent", ymax="fresh_energy_high_percent", color="way"), width=0.08, size=0.4
        )
        + p9.geom_line(p9.aes(color="way", linetype="way"), size=0.6)
        + p9.geom_point(p9.aes(color="way", shape="way"), size=1.8, fill="white", stroke=0.5)
        + p9.scale_x_continuous(breaks=list(range(len(latencies))), labels=labels, expand=(0.06, 0))
        + p9.scale_y_continuous(expand=(0.06, 0, 0.1, 0))
        + p9.scale_color_manual(style.cycle(style.SERIES, 2))
        + p9.scale_shape_manual(style.cycle(style.SHAPES, 2))
        + p9.scale_linetype_manual(style.cycle(style.LINES, 2))
        + p9.labs(
            title=f"{ends} % can be set today, of {-whole[FREE]:.1f} %",
            subtitle=f"{subject}; better: down",
            x="median latency of a change, ms: core, memory",
            y="change of energy, measured again, %\n(negative: saved)",
            caption="No time lost. Each change stalls the GPU for\n0.1 ms; latencies and stall are assumed.",
        )
        + p9.guides(**{key: p9.guide_legend(title="set today") for key in ("color", "shape", "linetype")})
        + style.theme(3.2)
    )


def _prediction(_: Path | None, path: Path) -> None:
    from experiments.benchmarks import gpu_prediction

    lines = gpu_prediction.read(RESULTS / "prediction_h200.csv")
    _write(gpu_prediction.draw(lines), gpu_prediction.CAPTION, "simulated and measured H200", path)


def _write(plot: Any, caption: str, subject: str, path: Path) -> None:
    """Draw as a study draws its own, and keep the PNG."""
    from kernel_dvfs.report.write import write_figure

    with tempfile.TemporaryDirectory() as folder:
        write_figure(plot, folder, path.stem, caption, subject)
        shutil.move(f"{folder}/figures/{path.stem}.png", path)


def screenshot(page: Path, path: Path, width: int, height: int, *more: str) -> None:
    """A page as a browser shows it in a window of that size, in CSS pixels. more: options of the browser. Raises
    CannotDraw where there is none."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise CannotDraw("no Chromium on this machine")
    with tempfile.TemporaryDirectory() as folder:
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}"]
        words += more
        words += [f"--window-size={width},{height}", f"--screenshot={path}", page.resolve().as_uri()]
        subprocess.run([browser, *words], check=True, capture_output=True, timeout=120)


_DESK, _PHONE, _HIGH = 1280, 390, 1000  # CSS pixels
# a window of its own for each width: a browser's may not be as narrow as a phone
_SIDE_BY_SIDE = """<style>body {{ display: flex; gap: 24px; margin: 12px; background: #c8cdd3 }}
iframe {{ border: 0; background: #fff }}</style>
<iframe src="{page}" width="{desk}" height="{high}"></iframe>
<iframe src="{page}" width="{phone}" height="{high}"></iframe>
"""


def _report_page(study: Path | None, path: Path) -> None:
    """The top of the page, at the width of a desk's screen and of a phone's."""
    assert study is not None
    page = (study / "report.html").resolve().as_uri()
    with tempfile.TemporaryDirectory() as folder:
        both = Path(folder) / "both.html"
        both.write_text(_SIDE_BY_SIDE.format(page=page, desk=_DESK, phone=_PHONE, high=_HIGH), "utf-8")
        screenshot(both, path, _DESK + _PHONE + 48, _HIGH + 24)


# the viewer is older than today's browsers: this polyfill gives them what it was written for
_POLYFILL = "webcomponents.js@0.7.24"
# it shows a kernel that moves data beside products, which take more power
_TRACE_PAGE = """<!DOCTYPE html>
<style>html, body, #viewer { margin: 0; width: 100%; height: 100%; overflow: hidden }</style>
<script>window.__hideTraceViewerPolyfillWarning = true</script>
<script src="node_modules/webcomponents.js/webcomponents.min.js"></script>
<link rel="import" href="trace_viewer_full.html">
<script src="trace.js"></script>
<script>
document.addEventListener('WebComponentsReady', () => {
  const viewer = document.createElement('tr-ui-timeline-view'), tracks = document.createElement('track-view-container')
  viewer.id = 'viewer'
  tracks.id = 'track_view_container'
  viewer.track_view_container = tracks
  Polymer.dom(viewer).appendChild(tracks)
  Polymer.dom(document.body).appendChild(viewer)
  const model = new tr.Model()
  new tr.importer.Import(model).importTraces([trace])
  viewer.model = model
  viewer.viewTitle = 'trace.json'
  setTimeout(() => {  // when the viewer has shown all
    const slice = [...model.getDescendantEvents()].find(event => (event.title || '').startsWith('log_softmax ('))
    const request = new tr.model.RequestSelectionChangeEvent()
    request.selection = new tr.model.EventSet([slice])
    viewer.dispatchEvent(request)
    const viewport = viewer.trackView.viewport, shown = viewport.currentDisplayTransform.clone()
    shown.scaleX = 250  // pixels a ms
    shown.panX = 1.4 - slice.start
    viewport.setDisplayTransformImmediately(shown)
  }, 1000)
})
</script>
"""


def _trace_opened(_: Path | None, path: Path) -> None:
    """The shipped step's trace in the viewer of torch's TensorBoard plugin, Chrome's own, with a slice selected."""
    from kernel_dvfs.cli.main import main as command
    from kernel_dvfs.profile.step import write_shipped_step

    plugin, npm = importlib.util.find_spec("torch_tb_profiler"), shutil.which("npm")
    if plugin is None or plugin.origin is None or npm is None:
        raise CannotDraw("needs npm, and pip install torch-tb-profiler")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shipped_step(folder)
        if command(["step", "trace", f"{folder}/profile.parquet", "-o", f"{folder}/trace.json"]):
            raise CannotDraw("the shipped step's profile was refused")
        (folder / "trace.js").write_text(f"const trace = {(folder / 'trace.json').read_text('utf-8')}", "utf-8")
        words = [npm, "install", "--silent", "--ignore-scripts", "--prefix", name, _POLYFILL]
        if subprocess.run(words, capture_output=True, timeout=300).returncode:
            raise CannotDraw(f"npm cannot install {_POLYFILL}")
        shutil.copy(Path(plugin.origin).parent / "static/trace_viewer_full.html", folder)
        page = folder / "trace.html"
        page.write_text(_TRACE_PAGE, "utf-8")
        # the page imports a file beside it, and is done some time after it is loaded
        screenshot(page, path, 1000, 450, "--allow-file-access-from-files", "--virtual-time-budget=20000")


# --- the pictures -----------------------------------------------------------------------------------------------------

_LIBRARY = "workflow/kernel_dvfs"
_STYLE = f"{_LIBRARY}/report/style.py"


def _own(name: str, *kept: str, code: tuple[str, ...] = ()) -> Picture:
    return Picture(
        tuple(f"default_study/{each}" for each in (*kept, "study.json")),
        (f"{_LIBRARY}/report/figures.py::{name}", *code, _STYLE),
        _figure(name),
    )


def _of_pipeline(name: str, *tables: str) -> Picture:
    own = [f"workflow/kernel_dvfs_pipeline/{each}" for each in (f"report/figures.py::{name}", "study.py", *tables)]
    code = [*own, f"{_LIBRARY}/change.py"]
    inputs = tuple(f"pipeline_study/{each}" for each in ("methods.csv", "runs.csv", "study.json"))
    return Picture(inputs, (*code, _STYLE), _pipeline(name), needs="pipeline")


PICTURES: dict[str, Picture] = {
    "fig6_relaxed_waste": _own("fig6_relaxed_waste", "relaxed.csv", "validation.csv"),
    "fig5_kernels_h200": Picture(
        ("auto_only_h200.csv",),
        (f"{_LIBRARY}/report/figures.py::fig5_kernels", f"{_LIBRARY}/workload/table1.py", _STYLE),
        _kernels_h200,
    ),
    "switching": Picture(
        ("deployable.csv", "default_study/study.json"),
        ("docs/make_figures.py::switching_figure", _STYLE),
        _switching,
    ),
    "prediction_h200": Picture(
        ("prediction_h200.csv",), ("experiments/benchmarks/gpu_prediction.py::draw", _STYLE), _prediction
    ),
    "pipeline_frontier": _of_pipeline("frontier"),
    "pipeline_timeline": _of_pipeline("timeline"),
    "pipeline_straggler": _of_pipeline(
        "straggler", *(f"report/{name}" for name in ("tables.py::straggler", "paper.py", "savings.py"))
    ),
    # of a page its top must say what it says today; how that looks (its CSS) may be a little older
    "report_page": Picture(
        tuple(f"default_study/{each}" for each in ("headline.csv", "deployable.csv", "study.json")),
        (
            *(
                f"{_LIBRARY}/report/page/{each}"
                for each in ("templates/study.html.j2", "templates/parts.html.j2", "answer.py", "frontier.py")
            ),
            "workflow/kernel_dvfs_deploy/page.py",
        ),
        _report_page,
        needs="study",
    ),
    "trace_opened": Picture(
        ("own_step_h200_workflow/llama/step_kernels.csv",),
        ("docs/make_figures.py::_trace_opened", "workflow/kernel_dvfs_hooks/trace.py::_process"),
        _trace_opened,
    ),
}


# --- what pages say in numbers ----------------------------------------------------------------------------------------

_VERDICTS = {"holds": "hold", "differs": "differ", "not testable": "cannot be tested in one study of one GPU"}


def _rows(name: str, key: str) -> dict[str, dict[str, str]]:
    """A table of the kept default study, its rows by a column."""
    path = RESULTS / STUDIES["study"].folder / f"{name}.csv"
    if not path.is_file():
        raise CannotDraw(f"{path.name} of the default study is not kept: --study DIR")
    return {row[key]: row for row in _read(path)}


def _percent(value: str) -> str:
    """+0.57 %, and 0 without a sign."""
    return f"{float(value):+.2f} %".replace("+0.00", "0.00").replace("-0.00", "0.00")


def _markdown(head: tuple[str, ...], *rows: tuple[str, ...]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def _answer() -> str:
    """The paper's headline beside ours, and how many claims hold."""
    again = _rows("validation", "quantity")
    energy, time = (_percent(again[name]["fresh_change_percent"]) for name in ("energy", "time"))
    near = _rows("headline", "schedule")["kernel-global-waste-slack0.6"]
    relied = [_percent(near[f"fresh_{name}_change_percent"]) for name in ("energy", "time")]
    verdicts = [row["verdict"] for row in _rows("claims", "number").values()]
    counted = [f"{verdicts.count(each)} {words}" for each, words in _VERDICTS.items()]
    return (
        "**The answer**: the paper saves 14.6 % of energy at 0.6 % more time, measured again. The simulated "
        f"RTX 3080 Ti, by the same procedure: {energy} energy at {time} time. By the procedure that "
        f"this project relies on, at a limit of 0.6 % more time: {relied[0]} at {relied[1]}. "
        f"Of the paper's {len(verdicts)} claims "
        f"{', '.join(counted[:-1])} and {counted[-1]}."
    )


def _headlines() -> str:
    """The headline figures: the paper's, ours as published, ours relied on."""
    published, again = _rows("strategies", "schedule"), _rows("validation", "quantity")
    relied = _rows("headline", "schedule")
    rows = []
    papers = {
        ("kernel", "energy"): "-15.64 % claimed, -14.6 % measured again",
        ("kernel", "time"): "+0.6 % measured again",
        ("pass", "energy"): "about -2 %",
        ("pass", "time"): "no loss",
    }
    for (level, quantity), paper in papers.items():
        name = f"{level}-global-waste-slack"
        claimed = _percent(published[f"{name}0"][f"{quantity}_change_percent"])
        measured = _percent(again[quantity]["fresh_change_percent"]) if level == "kernel" else "not measured again"
        ours = [relied.get(f"{name}{slack}") for slack in ("0", "0.6")]
        shown = [_percent(row[f"fresh_{quantity}_change_percent"]) if row else "not measured again" for row in ours]
        rows.append((f"clocks per {level}: {quantity}", paper, claimed, measured, *shown))
    published_head = ("as published, claimed", "as published, measured again")
    relied_head = ("relied on, no longer", "relied on, at most 0.6 % longer")
    return _markdown(("change against auto", "the paper", *published_head, *relied_head), *rows)


def _claims() -> str:
    """The claims that differ, each with our first number that breaks its rule, how many studies with other noise keep
    it, and the cause; then the others, by how many keep them. The study's table has every number, and all words."""
    from experiments.calibration import claims

    drawn = [row for row in claims.read(claims.RESULT) if row["board"] == "default"]
    differing, others = [], {}  # others: how often a claim holds -> claims
    told = {"": ""}  # cause -> how it is told again
    for row in _rows("claims", "number").values():
        number, verdict = row["number"], row["verdict"]
        held = claims.counted([study[number] for study in drawn])
        if verdict != "differs":
            others.setdefault(f"{verdict} {held}" if verdict == "holds" else verdict, []).append(row)
            continue
        faults, causes = [], []
        for part in row["why"].split("; "):
            (faults if ": not " in part else causes).append(part)
        cause = "; ".join(causes)
        why = told.get(cause, cause)
        told.setdefault(cause, f"as {number}")
        name, _, rule = faults[0].rpartition(": not ")
        numbers = [part for part in row["ours"].split("; ") if part.startswith(f"{name} ")]
        broken = next(part for part in numbers if part.endswith(f"({rule})"))
        cells = (number, row["claim"], broken, held, why)
        differing.append(tuple(_plain(cell).replace("|", "\\|") for cell in cells))
    head = ("", "differs", "here, in brackets the rule", f"holds, of {len(drawn)} draws", "why")
    lists = [f"**{how.capitalize()}**: {_named(rows, how == 'holds always')}." for how, rows in others.items()]
    return "\n\n".join([_markdown(head, *differing), *lists])


def _named(rows: list[dict[str, str]], by_number: bool) -> str:
    """The claims of some rows: in their words, or by their numbers alone where nothing is to be explained."""
    if by_number:
        return ", ".join(row["number"] for row in rows)
    return "; ".join(_plain(f"({row['number']}) {row['claim']}") for row in rows)


def _plain(text: str) -> str:
    return text.replace("<", "&lt;")


def _inferred() -> str:
    """What boards of the posterior do, beside the shipped one."""
    import numpy as np

    from experiments.calibration import infer_board

    rows, own = _read(infer_board.POSTERIOR), infer_board.headline(infer_board.SHIPPED)
    words = {
        "kernel_percent": "clocks per kernel, no longer",
        "kernel_06_percent": "clocks per kernel, at most 0.6 % longer",
        "pass_percent": "clocks per pass, no longer",
        "mix_percent": "the iteration at auto against its kernels alone at auto",
    }
    lines = []
    for name, each in words.items():
        low, middle, high = np.percentile([float(row[name]) for row in rows], [5, 50, 95])
        lines.append((each, _tenth(own[name]), _tenth(middle), f"{_tenth(low)} to {_tenth(high)}"))
    return _markdown(("change of energy, by the truth, at any clock", "shipped", "median", "5 to 95 %"), *lines)


def _tenth(value: float) -> str:
    return f"{value:+.1f} %"


def _draws() -> str:
    """The paper's procedure with other noise: whole studies, and draws of the same on the shipped board."""
    import numpy as np

    from experiments.calibration import claims, infer_board

    studies = [row for row in claims.read(claims.RESULT) if row["board"] == "default"]
    drawn = _read(infer_board.DRAWN)
    names = {
        "clocks per pass: energy, claimed": ("pass_energy_percent", "pass_energy", "about -2 %"),
        "clocks per kernel: energy, claimed": ("claimed_energy_percent", "claimed_energy", "-15.64 %"),
        "measured again": ("repeated_energy_percent", "again_energy", "-14.6 %"),
        "time, measured again": ("repeated_time_percent", "again_time", "+0.6 %"),
    }
    rows = []
    for words, (column, fact, paper) in names.items():
        own = ", ".join(f"{float(row[column]):+.1f}" for row in studies)
        low, middle, high = np.percentile([float(row[fact]) for row in drawn], [5, 50, 95])
        rows.append((words, paper, own, f"{middle:+.1f} ({low:+.1f} to {high:+.1f})"))
    held = [sum(row[number] == "h" for number in claims.CLAIMS) for row in studies]
    rows.append(("claims that hold, of 28", "", ", ".join(map(str, held)), ""))
    seeds = ", ".join(row["seed"] for row in studies)
    head = ("", "the paper", f"whole studies, seeds {seeds}", f"{len(drawn)} draws: median (5 to 95 %)")
    return _markdown(head, *rows)


def _predicted() -> str:
    """Which claims the board was inferred by, and what the others say of them."""
    from experiments.calibration import claims, infer_board
    from kernel_dvfs_paper.used import BUILT_IN

    studies = [row for row in claims.read(claims.RESULT) if row["board"] == "default"]
    used = {row["claim"]: row for row in _read(infer_board.FOLDED)}
    rows = [
        (
            f"used: {name}",
            ", ".join(f"{row['claim']} ({100 * float(row['holds']):.0f} %)" for row in own if _is(row)),
            ", ".join(f"{row['claim']} ({100 * float(row['holds']):.0f} %)" for row in own if not _is(row)),
        )
        for name in infer_board.FOLDS
        for own in [[row for row in used.values() if row["fold"] == name]]
    ]
    others = [number for number in claims.CLAIMS if number not in used and int(number) not in BUILT_IN]
    often = {number: sum(row[number] == "h" for row in studies) for number in others}
    known = [number for number in others if any(row[number] != "n" for row in studies)]
    right = [number for number in known if 2 * often[number] > len(studies)]
    rows.append(("built in, not predicted", ", ".join(map(str, BUILT_IN)), ""))
    rows.append(("not used", ", ".join(right), ", ".join(number for number in known if number not in right)))
    return _markdown(("claims", "predicted right", "predicted wrong"), *rows)


def _is(row: dict[str, str]) -> bool:
    return float(row["holds"]) >= 0.5


def _first_screen() -> str:
    """The first table of README: what may be saved, and what can be set today."""
    from kernel_dvfs.report.inference import KERNEL_ENERGY
    from kernel_dvfs.report.words import WAYS, change_of, costs_in_words, set_today, signed
    from kernel_dvfs.shipped import POSTERIOR_BAND
    from kernel_dvfs.table_file import kept_rows

    def row(limit: str, energy: str | float, time: str | float) -> tuple[str, str, str]:
        return limit, f"**{signed(float(energy))} %**", f"{signed(float(time))} %"

    headline = _rows("headline", "schedule").items()
    rows = [
        row(f"{float(own['slack_percent']):g} % longer" if float(own["slack_percent"]) else "no longer", *_again(own))
        for name, own in headline
        if name.startswith("kernel-")
    ]
    today = set_today(kept_rows(RESULTS / STUDIES["study"].folder / "deployable.csv"))
    changes = [(change_of(own), change_of(own, "time")) for own in today]
    # where no mixture of pairs is better, all ways are the first: one pair
    ways = today[:1] if len(set(changes)) == 1 else today
    rows += [
        row(f"no longer, with what can be set today: {WAYS[own['way']]}", *change)
        for own, change in zip(ways, changes, strict=False)
    ]
    costs = costs_in_words(today[-1]).replace("medians", "medians, late ones included")
    table = _markdown(("an iteration of GPT-3 XL may take", "energy, measured again", "time"), *rows)
    subject = json.loads((RESULTS / STUDIES["study"].folder / "study.json").read_text("utf-8"))["subject"]
    table = table.replace("|---|---|---|", "|---|--:|--:|")
    band = next(row for row in _read(POSTERIOR_BAND) if row["figure"] == KERNEL_ENERGY)
    p05, p95 = (float(band[name]) for name in ("p05", "p95"))
    return (
        f"{table}\n\n*{subject[:1].upper()}{subject[1:]}. Not all facts of this board are public "
        "([which](docs/simulated-gpu.md#what-nobody-has-measured)): the most that the first row can save is between "
        f"{-p95:.0f} and {-p05:.0f} %. The first rows count changes of clocks as free. [What can be set today]"
        f"(docs/deploy.md#when-a-clock-change-takes-time) counts what they cost: {costs}.*"
    )


def _again(row: dict[str, str]) -> tuple[str, str]:
    return row["fresh_energy_change_percent"], row["fresh_time_change_percent"]


def _boards() -> str:
    """What can be set today on every shipped board, at its own latencies."""
    import pandas as pd

    from experiments.searches import deployable

    frame = pd.read_csv(deployable.RESULT)
    free = frame.way == deployable.FREE
    return deployable.in_markdown(frame[frame.own_latency | frame.latency_ms.isna() | free])


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "reproduce.md": {
        "answer": _answer,
        "headline": _headlines,
        "draws": _draws,
        "predicted": _predicted,
        "claims": _claims,
    },
    "simulated-gpu.md": {"inferred": _inferred},
    "deploy.md": {"boards": _boards},
    "../README.md": {"first screen": _first_screen},
}


def written(name: str) -> str:
    """The text of a page of docs/ with today's numbers. Raises CannotDraw where the page has no place for them."""
    text = (ROOT / "docs" / name).read_text("utf-8")
    for part, make in PAGES[name].items():
        begin, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->"
        before, found, rest = text.partition(begin)
        _old, closed, after = rest.partition(end)
        if not (found and closed):
            raise CannotDraw(f"{name}: no {begin.strip()} and {end}")
        text = before + begin + make() + "\n" + end + after
    return text


# --- digests ----------------------------------------------------------------------------------------------------------


def digest(paths: Iterable[Path]) -> str:
    """SHA-256 of the files' contents, in their order; of a Python file, of what it does, and of `FILE.py::NAME` of what
    this function there does. A missing file is empty."""
    found = hashlib.sha256()
    for path in paths:
        file, _, name = str(path).partition("::")
        content = Path(file).read_bytes() if Path(file).is_file() else b""
        if file.endswith(".py"):
            content = meaning(content.decode("utf-8"), name).encode()
        found.update(hashlib.sha256(content).digest())
    return found.hexdigest()


def meaning(code: str, name: str = "") -> str:
    """Python without comments, docstrings, blank lines and the declarations of outputs: what draws nothing. name: only
    this function, and what it uses of its module."""
    tree = ast.parse(code)
    if name:
        known = {each: node for node in tree.body for each in _names(node)}
        wanted, used = [name], set()
        while wanted:
            if (each := wanted.pop()) in known and each not in used:
                used.add(each)
                inside = getattr(known[each], "body", [known[each]])
                wanted += [node.id for part in inside for node in ast.walk(part) if isinstance(node, ast.Name)]
        tree.body = [node for node in tree.body if used & set(_names(node))]
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            body[:1] = [] if len(body) > 1 else [ast.Pass()]
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
    return ast.unparse(_WithoutImports().visit(tree))


class _WithoutImports(ast.NodeTransformer):
    """Where a name lies changes no picture."""

    def visit_Import(self, node: ast.Import) -> ast.Pass:
        return ast.Pass()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.Pass:
        return ast.Pass()


def _names(node: ast.stmt) -> list[str]:
    """What a statement at the top of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def digests(picture: Picture) -> dict[str, str]:
    """What the metadata of a fresh picture say."""
    return {
        INPUTS: digest(RESULTS / name for name in picture.inputs),
        CODE: digest(ROOT / name for name in picture.code),
    }


def stale() -> list[str]:
    """A line for each picture that is missing, of nobody, or drawn from other results or by other code than is here,
    and for each page whose numbers are of other results."""
    from PIL import Image

    lines = [f"{path.name}: not in PICTURES" for path in sorted(FOLDER.iterdir()) if path.stem not in PICTURES]
    for name, picture in PICTURES.items():
        path = FOLDER / f"{name}.png"
        if not path.is_file():
            lines.append(f"{path.name}: missing")
            continue
        with Image.open(path) as image:
            held = dict(getattr(image, "text", {}))
        for key, now in digests(picture).items():
            if held.get(key) != now:
                files = picture.inputs if key == INPUTS else picture.code
                lines.append(f"{path.name}: drawn from other content of {', '.join(files)}")
    pages = [name for name in PAGES if written(name) != (ROOT / "docs" / name).read_text("utf-8")]
    return [*lines, *(f"{name}: its numbers are not those of the kept results" for name in pages)]


def stamp(path: Path, picture: Picture) -> None:
    """Put the digests into a PNG: in full into its metadata, and in small print below it."""
    from matplotlib import font_manager
    from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

    whole = digests(picture)
    first = Path(picture.inputs[0])
    words = f"docs/make_figures.py from {first.parts[0]}, digest {whole[INPUTS][:_SHOWN]}"
    with Image.open(path) as opened:
        image, text, dpi = opened.convert("RGB"), dict(getattr(opened, "text", {})), opened.info.get("dpi")
    size = round(_SMALL_PT / 72 * dpi[0]) if dpi else max(12, image.width // 100)
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), size)
    taller = Image.new("RGB", (image.width, image.height + 2 * size), "white")
    taller.paste(image)
    ImageDraw.Draw(taller).text((size, image.height + size // 3), words, fill="#666666", font=font)
    about = PngImagePlugin.PngInfo()
    for key, value in (text | whole).items():
        about.add_text(key, value)
    taller.save(path, pnginfo=about, optimize=True, **({"dpi": dpi} if dpi else {}))


def draw(name: str, study: Path | None = None) -> None:
    """Draw one picture. Raises CannotDraw."""
    picture = PICTURES[name]
    if picture.needs and study is None:
        raise CannotDraw(f"needs a finished study: --{picture.needs} DIR")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.png"
        picture.draw(study, path)
        stamp(path, picture)
        shutil.copyfile(path, FOLDER / path.name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"default: all that can be drawn; {', '.join(PICTURES)}"
    )
    for name, kept in STUDIES.items():
        parser.add_argument(f"--{name}", type=Path, metavar="DIR", help=f"finished; kept in {kept.folder}")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(PICTURES))
    if unknown:
        parser.error(f"no picture {', '.join(unknown)}; there are {', '.join(PICTURES)}")
    studies = {name: getattr(options, name) for name in STUDIES}
    try:
        for name, study in studies.items():
            if study is not None:
                keep(name, study)
    except CannotDraw as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in options.names or PICTURES:
        try:
            draw(name, studies.get(PICTURES[name].needs))
            print(f"{name}: drawn")
        except CannotDraw as error:
            print(f"{name}: not drawn, {error}", file=sys.stderr)
    try:
        for name in PAGES:
            text = written(name)
            (ROOT / "docs" / name).write_text(text, "utf-8")
        left = stale()
    except CannotDraw as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(f"stale: {line}" for line in left), file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
