"""Which board is the paper's? The figures of the simulated RTX 3080 Ti by all that is public, the paper included.

    python experiments/calibration/infer_board.py posterior|folds|backward [--particles N] [--jobs 2]
    python experiments/calibration/infer_board.py draws
    python experiments/calibration/infer_board.py show > experiments/results/board_posterior.txt

No measurement of an RTX 3080 Ti determines these figures (docs/simulated-gpu.md). The prior is what fits, other boards
and public rates say of each; the likelihood is what the paper prints, through its own procedure with its noise
(joint/paper.py), on boards that are computed in a millisecond (joint/truth.py).

posterior   boards drawn from the posterior, one a row, with what each does -> experiments/results/board_posterior.csv
folds       the same without a group of clues, and how often the claims behind them hold then: what is predicted, not
            used -> experiments/results/board_folds.csv
backward    the evidence for products of the backward pass that take another energy a FLOP, which depends on data
            -> experiments/results/board_evidence.csv
draws       the paper's procedure on the shipped board, 200 times -> experiments/results/board_draws.csv; and what the
            package ships of the posterior: the band of the headline, the claims that were used
show        all of it in words
About 8, 14 and 11 minutes of one core; the others take seconds.
"""

from __future__ import annotations

import argparse
import csv
import functools
import io
import multiprocessing
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np

from experiments.calibration.joint import paper
from experiments.calibration.joint.sample import Sample, sample
from experiments.calibration.joint.truth import (
    GPU,
    PUBLIC_SIDE,
    default_study,
    headline_study,
    least_change,
    spec_of,
    traffic_of,
    truth,
)
from experiments.calibration.points import measured_board
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.report.inference import digest
from kernel_dvfs.shipped import POSTERIOR_BAND, POSTERIOR_CLAIMS
from kernel_dvfs_clocks.clocks import AUTO
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text


class Figure(NamedTuple):
    """A figure of the board that no measurement of it determines, and what is known of it without the paper."""

    low: float
    high: float
    mean: float | None = None  # None: alike from low to high
    sd: float = 0.0


SHIPPED, FITTED = specs.resolve(GPU), measured_board(GPU)  # FITTED: of the public data set's specimen
# the sources of each stand in docs/simulated-gpu.md
FIGURES = {
    "tensor_pj": Figure(0.3, 1.15, 0.77, 0.10),
    "auto_mhz": Figure(1870, 1975, 1926, 25),
    "above_auto_mhz": Figure(0, 8),
    "mhz_per_w": Figure(0.1, 0.5, 0.30, 0.08),
    "v_1760": Figure(1.3, 1.5, 1.402, 0.035),
    "v_1890": Figure(1.49, 1.60, 1.541, 0.014),
    "v_1962": Figure(1.65, 1.80, 1.723, 0.020),
    "hunting_mhz": Figure(0, 90),
    "auto_extra": Figure(0, 0.03),
    "cap_w": Figure(335, 355),
    "traffic": Figure(1, 4),
    "overlap": Figure(2.5, 5.5, 3.6, 0.7),
    "efficiency": Figure(0.94, 1.0, 0.99, 0.015),
    "dram_pj": Figure(83, 112, 92, 8),
    "static": Figure(0.88, 1.12, 1.0, 0.04),
    "governed_sd": Figure(0.002, 0.007),
    "backward": Figure(0.5, 1.5, 1.0, 0.2),
}
RESULTS = Path(__file__).resolve().parents[1] / "results"
NAMES = ("posterior", "folds", "evidence", "draws")
POSTERIOR, FOLDED, EVIDENCE, DRAWN = (RESULTS / f"board_{name}.csv" for name in NAMES)
PARTICLES = {"posterior": 450, "folds": 180, "backward": 180}
DRAWS = 200
PUBLIC_TFLOP_PER_S = (77.2, 1.0)  # four public boards: 76.0 to 78.3


def overrides(figures: Mapping[str, float]) -> dict[str, Any]:
    """Return the figures as a spec has them."""
    voltage = [[mhz, figures.get(f"v_{mhz}", own)] for mhz, own in FITTED["core"]["v_over_v0"]]
    static = {mhz: own * figures["static"] for mhz, own in FITTED["memory"]["static_w"].items()}
    over = {
        "energy_pj": {"tensor_bf16_flop": figures["tensor_pj"], "dram_byte": figures["dram_pj"]},
        "clocks": {
            "auto_core_mhz": figures["auto_mhz"],
            "top": SHIPPED["clocks"]["top"]
            | {"above_auto_mhz": figures["above_auto_mhz"], "mhz_per_w": figures["mhz_per_w"]},
        },
        "core": {"v_over_v0": voltage},
        "governor": {
            "hunting_mhz": figures["hunting_mhz"],
            "auto_extra_power": figures["auto_extra"],
            "cap_w": figures["cap_w"],
        },
        "memory": {"static_w": static},
        "families": {"default": {"overlap": figures["overlap"]}, "gemm": {"tensor_efficiency": figures["efficiency"]}},
        "noise": {"offset_sd": SHIPPED["noise"]["offset_sd"] | {"governed": figures["governed_sd"]}},
    }
    if figures.get("traffic") is not None:
        over["memory"]["gemm_traffic"] = figures["traffic"]
    return over


def log_prior(names: tuple[str, ...], at: np.ndarray) -> np.ndarray:
    """Return the log density of (N, d) points, up to a constant; -inf outside."""
    found = np.zeros(len(at))
    for values, name in zip(at.T, names):
        figure = FIGURES[name]
        if figure.mean is not None:
            found -= 0.5 * ((values - figure.mean) / figure.sd) ** 2
        found[(values < figure.low) | (values > figure.high)] = -np.inf
    return found


def from_prior(names: tuple[str, ...], count: int, seed: int) -> np.ndarray:
    """Return (N, d) draws."""
    draw = np.random.default_rng([seed, 1])

    def drawn(figure: Figure) -> np.ndarray:
        if figure.mean is None:
            return draw.uniform(figure.low, figure.high, count)
        found = draw.normal(figure.mean, figure.sd, count)
        while (outside := (found < figure.low) | (found > figure.high)).any():
            found[outside] = draw.normal(figure.mean, figure.sd, outside.sum())
        return found

    return np.stack([drawn(FIGURES[name]) for name in names], axis=1)


def look(names: tuple[str, ...], point: np.ndarray, draws: int = paper.DRAWS, seed: int = 7) -> dict[str, Any]:
    """Return what a board does: clues, facts, the public product's rate."""
    figures = dict(zip(names, point.tolist()))
    spec, study = spec_of(overrides(figures)), default_study()
    board = truth(study, spec, figures.get("backward", 1.0))
    rate = 2 * PUBLIC_SIDE**3 / board.time_s[-1, 0] * 1e-12
    facts = paper.facts_of(study, board, paper.scatter_of(spec["noise"]), figures["auto_mhz"], seed, draws)
    return {"rate": rate, "facts": facts, "values": paper.clue_values(facts)}


def likely(names: tuple[str, ...], left_out: frozenset[str], point: np.ndarray) -> tuple[float, Any]:
    """Return (log likelihood of a board, what it shows); the clues left out do not count."""
    found = look(names, point)
    mean, sd = PUBLIC_TFLOP_PER_S
    public = -0.5 * ((found["rate"] - mean) / sd) ** 2
    return public + paper.log_likelihood(found["values"], left_out), found


def drawn(
    options: argparse.Namespace, further: int = 0, left_out: frozenset[str] = frozenset(), backward: bool = False
) -> Sample:
    """Return boards of the posterior. further: added to the seed; left_out: clues that are not used; backward: whether
    that factor is free."""
    seed = options.seed + further
    names = names_of(backward)
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        return sample(
            from_prior(names, options.particles, seed),
            functools.partial(log_prior, names),
            lambda at: pool.map(functools.partial(likely, names, left_out), at, chunksize=8),
            seed,
            lambda text: print(text, file=sys.stderr, flush=True),
        )


def names_of(backward: bool = False) -> tuple[str, ...]:
    """Return the figures that are inferred."""
    return tuple(name for name in FIGURES if backward or name != "backward")


# --- what is kept ----------------------------------------------------------------------------------------------------

SHOWN = ("pass_energy", "claimed_energy", "again_energy", "again_time", "square", "one_share")
WORKLOAD = "gpt3-xl-b40-tp1"
SLACKS = {"kernel_percent": 0.0, "kernel_06_percent": 0.006}


def headline(spec: Mapping[str, Any], backward: float = 1.0) -> dict[str, float]:
    """Return changes of energy by the truth, percent: of the best of all clocks against the iteration at auto (kernels
    at no loss of time and at 0.6 %, passes at no loss), and of the iteration at auto against its kernels alone."""
    study = headline_study()
    board, count = truth(study, spec, backward), study.kernels
    launches = study.launches[:, None]
    time_s, energy_j = launches * board.time_s[:count], launches * board.energy_j[:count]
    locked = np.array([AUTO not in pair for pair in study.pairs])
    auto = float(board.time_s[-1, 0]), float(board.energy_j[-1, 0])
    found = {name: least_change(time_s[:, locked], energy_j[:, locked], auto, slack) for name, slack in SLACKS.items()}
    (front_t, back_t), (front_e, back_e) = (each[count : count + 2] for each in (board.time_s, board.energy_j))
    together_t, together_e = front_t[:, None] + back_t, front_e[:, None] + back_e
    kept = np.where(together_t <= together_t[0, 0], together_e, np.inf).min()
    found["pass_percent"] = float(100 * (kept / together_e[0, 0] - 1))
    found["mix_percent"] = float(100 * (auto[1] / energy_j[:, 0].sum() - 1))
    return found


def row_of(
    names: tuple[str, ...], point: np.ndarray, log_likelihood: float, found: Mapping[str, Any]
) -> dict[str, float]:
    """Return a board as it is kept: figures, what it does by the truth and in the median draw, the share of draws in
    which each claim holds, and by how much its log likelihood changes without each clue."""
    figures = dict(zip(names, point.tolist()))
    row = figures | {"log_density": log_likelihood + float(log_prior(names, point[None])[0])}
    row |= {"public_tflop_per_s": found["rate"]}
    row |= headline(spec_of(overrides(figures)), figures.get("backward", 1.0))
    row |= {f"median_{name}": float(np.median(found["facts"][name])) for name in SHOWN}
    row |= {f"holds_{claim}": float(held.mean()) for claim, held in paper.verdicts(found["facts"]).items()}
    whole = paper.log_likelihood(found["values"])
    for clue in found["values"]:
        row[f"without_{clue}"] = paper.log_likelihood(found["values"], frozenset((clue,))) - whole
    return {name: float(f"{value:.5g}") for name, value in row.items()}


def written(rows: list[dict[str, Any]], path: Path) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def posterior(options: argparse.Namespace) -> None:
    names, found = names_of(), drawn(options)
    rows = [row_of(names, *each) for each in zip(found.at, found.log_likelihood.tolist(), found.kept)]
    written(rows, POSTERIOR)
    keep_evidence("as forward", found)


# clues that stand or fall together
FOLDS = {
    "which clocks": ("11", "13", "16", "30"),
    "clocks per pass": ("1", "2", "3", "4", "19"),
    "the headline": ("8, energy", "8, time", "9", "20"),
}


def folds(options: argparse.Namespace) -> None:
    rows = []
    for number, (name, clues) in enumerate(FOLDS.items(), 1):
        found = drawn(options, number, frozenset(clues))
        held = [paper.verdicts(own["facts"]) for own in found.kept]
        for claim in dict.fromkeys(clue.split(",")[0] for clue in clues):
            share = float(np.mean([own[claim].mean() for own in held]))
            saved = np.median([np.median(own["facts"]["again_energy"]) for own in found.kept])
            about = {"fold": name, "claim": claim, "holds": round(share, 3)}
            rows.append(about | {"median_again_energy": round(float(saved), 2), "boards": found.distinct})
    written(rows, FOLDED)


def backward(options: argparse.Namespace) -> None:
    keep_evidence("free", drawn(options, len(FOLDS) + 1, backward=True))


def keep_evidence(name: str, found: Sample) -> None:
    """Put the evidence for a form of the model beside the others'. name: of the factor of backward products."""
    low, middle, high = np.percentile(found.at[:, -1], [5, 50, 95]).round(3) if name == "free" else (1.0, 1.0, 1.0)
    own = {"backward": name, "log_evidence": f"{found.log_evidence:.2f}", "p05": low, "p50": middle, "p95": high}
    others = [row for row in read(EVIDENCE) if row["backward"] != name] if EVIDENCE.exists() else []
    written(sorted([*others, own | {"boards": found.distinct}], key=lambda row: str(row["backward"])), EVIDENCE)


# --- the shipped board ------------------------------------------------------------------------------------------------


_OVER = "over boards that public evidence and the paper allow"


def draws(_: argparse.Namespace) -> None:
    study, board = default_study(), truth(default_study(), SHIPPED)
    cool_mhz, scatter = SHIPPED["clocks"]["auto_core_mhz"], paper.scatter_of(SHIPPED["noise"])
    facts = paper.facts_of(study, board, scatter, cool_mhz, seed=1, draws=DRAWS)
    held = paper.verdicts(facts)
    columns = {name: facts[name] for name in SHOWN} | {f"holds_{claim}": own.astype(int) for claim, own in held.items()}
    written([{name: float(f"{own[place]:.5g}") for name, own in columns.items()} for place in range(DRAWS)], DRAWN)
    rows = []
    for figure, column in (("kernel_energy_change", "kernel_percent"), ("pass_energy_change", "pass_percent")):
        low, middle, high = np.percentile([float(row[column]) for row in read(POSTERIOR)], [5, 50, 95]).round(2)
        rows.append(
            {"figure": figure, "unit": "percent", "p05": low, "p50": middle, "p95": high}
            | {"meaning": f"by the best possible choice, {_OVER}, without noise"}
            | {"source": "experiments/results/board_posterior.csv", "board": SHIPPED["id"]}
            | {"spec_digest": digest(SHIPPED), "workload": WORKLOAD}
        )
    written(rows, Path(POSTERIOR_BAND))
    of = {"spec_digest": digest(SHIPPED), "workload": WORKLOAD}
    used = [
        {"claim": row["claim"], "group": row["fold"], "holds_without_group": row["holds"]} | of for row in read(FOLDED)
    ]
    written(used, Path(POSTERIOR_CLAIMS))


# --- in words ---------------------------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a kept file. Raises InputError where it is not there."""
    if not path.exists():
        raise InputError(f"{path}: not there; run the part that writes it")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def effective(weight: np.ndarray) -> float:
    """Return how many draws of equal weight tell as much."""
    return float(weight.sum() ** 2 / (weight**2).sum())


def best(rows: list[dict[str, str]]) -> dict[str, float]:
    """Return the figures of the most probable board that was drawn."""
    own = max(rows, key=lambda row: float(row["log_density"]))
    return {name: float(own[name]) for name in names_of()}


def show(_: argparse.Namespace) -> None:
    rows = read(POSTERIOR)
    column = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    print(f"{len(rows)} boards of the posterior; figures: what is known without the paper, then with it")
    heads = ("prior 5 %", "50 %", "95 %", "5 %", "50 %", "95 %", "shipped", "best drawn")
    print(f"{'':16}" + "".join(f"{head:>11}" for head in heads))
    names = names_of()
    start = from_prior(names, 20000, 0)
    shipped, found = shipped_figures(), best(rows)
    for place, name in enumerate(names):
        before, after = (np.percentile(own, [5, 50, 95]) for own in (start[:, place], column[name]))
        cells = (*before, *after, shipped[name], found[name])
        print(f"{name:16}" + "".join(f"{value:>11.4g}" for value in cells))
    print("\nwhat such boards do, %: by the truth at any clock against the iteration at auto; by the paper's procedure")
    for name in (*SLACKS, "pass_percent", "mix_percent", "public_tflop_per_s", *(f"median_{each}" for each in SHOWN)):
        print(f"{name:24}" + "".join(f"{value:>10.3f}" for value in np.percentile(column[name], [5, 50, 95])))
    print("\nclaims, share of draws in which each holds: with all clues; without its own; without those of its group")
    folded = {row["claim"]: row for row in read(FOLDED)}
    for claim in (name.removeprefix("holds_") for name in column if name.startswith("holds_")):
        own = column[f"holds_{claim}"]
        clues = [name for name in column if name.startswith("without_") and name[8:].split(",")[0] == claim]
        shift = sum(column[name] for name in clues)
        weight = np.exp(shift - np.max(shift)) if clues else np.ones(len(rows))
        share = np.average(own, weights=weight)
        alone = f"{share:.2f} ({effective(weight):.0f} boards' worth)" if clues else "not used"
        group = f"{float(folded[claim]['holds']):.2f} ({folded[claim]['fold']})" if claim in folded else ""
        print(f"{claim:>4}{own.mean():>8.2f}   {alone:28}{group}")
    print("\nproducts of the backward pass with another energy a FLOP: log evidence, factor (5, 50, 95 %)")
    for row in read(EVIDENCE):
        print(f"  {row['backward']:12}{row['log_evidence']:>8}   {row['p05']} {row['p50']} {row['p95']}")


def shipped_figures() -> dict[str, float]:
    """Return the figures of the shipped board; of its traffic, by tiles, the multiple that it comes to."""
    clocks, governor, families = SHIPPED["clocks"], SHIPPED["governor"], SHIPPED["families"]["gemm"]
    own = {
        "tensor_pj": SHIPPED["energy_pj"]["tensor_bf16_flop"],
        "auto_mhz": clocks["auto_core_mhz"],
        "above_auto_mhz": clocks["top"]["above_auto_mhz"],
        "mhz_per_w": clocks["top"]["mhz_per_w"],
        **{f"v_{mhz}": own for mhz, own in SHIPPED["core"]["v_over_v0"]},
        "hunting_mhz": governor["hunting_mhz"],
        "auto_extra": governor["auto_extra_power"],
        "cap_w": governor["cap_w"],
        "traffic": traffic_of(SHIPPED),
        "overlap": families["overlap"],
        "efficiency": families["tensor_efficiency"],
        "dram_pj": SHIPPED["energy_pj"]["dram_byte"],
        "static": SHIPPED["memory"]["static_w"]["9251"] / FITTED["memory"]["static_w"]["9251"],
        "governed_sd": SHIPPED["noise"]["offset_sd"]["governed"],
    }
    return {name: float(own[name]) for name in names_of()}


PARTS = {"posterior": posterior, "folds": folds, "backward": backward, "draws": draws, "show": show}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--particles", type=int, help=f"boards that are drawn (default: {PARTICLES})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    options = parser.parse_args()
    options.particles = options.particles or PARTICLES.get(options.part)
    try:
        PARTS[options.part](options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
