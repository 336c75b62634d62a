"""Published measurements of serving, and the same from the simulated GPU, each with its error.

Figures are quoted with their source; none of them is ours. Some have informed the model, where they are physics of a
kernel family and not a serving result: the times (not the energies) of BEAM's clock sweep the bytes per clock and the
overlap of `linear` in gpu/specs/families.yaml and its half-filled tokens, apex_plus the latency of an all-reduce, three
of ML.ENERGY's 34 rows the host's time (system.HOST_S, steps.SEQUENCE_S).
No energy has been fitted, but the form of one was chosen with ML.ENERGY's and BEAM's in sight: kernels that wait for
weights or cache take a plain stream's energy per byte (steps.StepModel.kernel). Everything else is a prediction.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np

from kernel_dvfs_serving.make_profile import InstanceRun, simulate_instance, weighted_quantile
from kernel_dvfs_serving.models import served
from kernel_dvfs_serving.steps import EngineStep, StepModel

SUBJECT = "simulated H100 SXM and A100 SXM"
GPU = "h100_sxm"
OUTPUT, ENERGY = "output", "energy"

# informed: a figure of the model rests on it. seen: not fitted, but the model's form was chosen with it in sight.
# predicted: neither. old software: likewise, and measured on an engine that launches kernels one by one and schedules
# slowly, which a model of kernels does not have.
INFORMED, SEEN, PREDICTED, OLD = "informed", "seen", "predicted", "predicted, old software"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A published measurement, and ours."""

    source: str
    setting: str
    quantity: str
    unit: str
    published: float
    ours: float
    role: str  # INFORMED, SEEN, PREDICTED or OLD
    # of an energy per token: by how much power and tokens/s are both off in one direction, which it does not show
    cancelled_percent: float | None = None


SPLITWISE = "splitwise-sim data (MIT), H100, Llama2-70B, vLLM of 2023"
# median of five runs, ms: {tp: {prompt tokens: first token}}, {tp: between tokens at batch 1}
SPLITWISE_PROMPT_MS = {
    2: {512: 83.8, 1024: 158.0, 2048: 310.3, 8192: 1339.8},
    4: {512: 59.6},
    8: {512: 53.4, 1024: 77.9, 2048: 136.8, 8192: 844.9},
}
SPLITWISE_TOKEN_MS = {2: 37.0, 4: 29.7, 8: 29.8}
SPLITWISE_TOKEN_BATCH_64_MS = {4: 52.4}

ML_ENERGY = "ML.ENERGY leaderboard v3 (Apache-2.0), H100, vLLM 0.11.1"


class Served(NamedTuple):
    """A model as published, the shapes that are simulated for it, and its tensor parallel degree."""

    name: str
    shapes: str  # of models.MODELS
    tp: int

    def at_most(self, sequences: int) -> str:
        """The setting of a row."""
        return f"{self.name}, tp {self.tp}, at most {sequences} sequences"


class Load(NamedTuple):
    """So many requests, all there at the start, to an engine of at most `sequences` at once."""

    sequences: int
    requests: int
    answer_tokens: float  # mean


class Measured(NamedTuple):
    """What came of a Load."""

    power_w: float  # of all GPUs
    output_tps: float  # tokens/s
    gap_ms: float  # between tokens, median of the whole run
    token_j: float  # energy per token


# power, tokens/s and energy are of the steady state
ML_ENERGY_ROWS = {
    Served("Llama 3.1 70B", "llama3-70b", 4): {
        Load(8, 1024, 350): Measured(1765, 470, 16.57, 3.759),
        Load(16, 1024, 354): Measured(1804, 863, 17.70, 2.091),
        Load(32, 1024, 351): Measured(1794, 1487, 20.05, 1.207),
        Load(64, 1024, 352): Measured(2002, 2511, 22.43, 0.7972),
        Load(96, 1024, 357): Measured(2102, 3244, 25.36, 0.6478),
        Load(128, 1024, 359): Measured(2184, 3876, 27.87, 0.5634),
        Load(192, 1024, 357): Measured(2293, 4461, 33.70, 0.514),
        Load(256, 1024, 349): Measured(2354, 4915, 39.84, 0.479),
        Load(384, 1024, 364): Measured(2344, 5319, 55.12, 0.4406),
        Load(512, 2048, 350): Measured(2493, 5921, 73.89, 0.421),
        Load(768, 2048, 351): Measured(2535, 6507, 103.64, 0.3896),
        Load(1024, 2048, 351): Measured(2548, 6827, 105.61, 0.3731),
    },
    Served("Llama 3.3 70B", "llama3-70b", 4): {
        Load(8, 1024, 409): Measured(1787, 465, 16.87, 3.847),
        Load(16, 1024, 410): Measured(1839, 875, 17.56, 2.102),
        Load(32, 1024, 413): Measured(1896, 1518, 19.86, 1.249),
        Load(64, 1024, 409): Measured(2108, 2564, 22.34, 0.8223),
        Load(96, 1024, 420): Measured(2224, 3315, 25.38, 0.6708),
        Load(128, 1024, 411): Measured(2351, 3895, 27.76, 0.6036),
        Load(192, 1024, 406): Measured(2461, 4558, 33.61, 0.54),
        Load(256, 1024, 413): Measured(2519, 5130, 39.06, 0.4911),
        Load(384, 1024, 408): Measured(2511, 5658, 53.85, 0.4437),
        Load(512, 2048, 414): Measured(2491, 5858, 73.59, 0.4251),
        Load(768, 2048, 413): Measured(2546, 6018, 97.54, 0.4231),
    },
    Served("Llama 3.1 8B", "llama3-8b", 1): {
        Load(8, 1024, 389): Measured(486, 1070, 7.32, 0.4548),
        Load(16, 1024, 404): Measured(513, 1954, 7.91, 0.2627),
        Load(32, 1024, 390): Measured(560, 3391, 8.91, 0.1651),
        Load(64, 1024, 396): Measured(610, 5147, 11.50, 0.1186),
        Load(96, 1024, 393): Measured(644, 6260, 14.08, 0.1029),
        Load(128, 1024, 405): Measured(669, 7037, 16.48, 0.09511),
        Load(192, 1024, 397): Measured(688, 8223, 20.91, 0.0837),
        Load(256, 2048, 404): Measured(691, 9010, 26.13, 0.07664),
        Load(384, 2048, 394): Measured(687, 9248, 37.70, 0.07423),
        Load(512, 2048, 397): Measured(688, 9806, 47.41, 0.07019),
        Load(768, 3072, 397): Measured(685, 9603, 62.93, 0.07135),
    },
}
# the rows whose tokens/s and gaps system.HOST_S and steps.SEQUENCE_S were fitted to; all others were left out
ML_ENERGY_USED = {"Llama 3.1 8B": (8, 64, 256)}
# the rows that were in sight when the form of energy was chosen
ML_ENERGY_SEEN = {"Llama 3.1 70B": (8, 64, 256, 1024)}
# the engine's own configuration there (ml-energy/benchmark); lengths of prompts are not with the figures: assumed
ML_ENERGY_STEP_TOKENS = 8192
ML_ENERGY_PROMPT_TOKENS = 300

# its version 2 ran an engine that gave a third of version 3's tokens/s: only models' ratios to another are compared
ML_ENERGY_2024 = "ML.ENERGY leaderboard v2 (Apache-2.0), H100, vLLM 0.5"
ML_ENERGY_2024_RATIO_TO = "Llama 3.1 70B"
# numbers of requests as in version 3 (assumed): (tokens/s, J per token)
ML_ENERGY_2024_ROWS = {
    Served(ML_ENERGY_2024_RATIO_TO, "llama3-70b", 4): {
        Load(64, 1024, 461): (811, 1.313),
        Load(256, 1024, 458): (1464, 0.7741),
        Load(1024, 2048, 456): (1923, 0.6182),
    },
    Served("Mixtral 8x7B", "mixtral-8x7b", 4): {
        Load(64, 1024, 376): (874, 1.006),
        Load(256, 1024, 379): (1705, 0.5004),
        Load(1024, 2048, 375): (2183, 0.3698),
    },
    Served("Mixtral 8x22B", "mixtral-8x22b", 8): {
        Load(64, 1024, 382): (493, 3.333),
        Load(256, 1024, 385): (1178, 1.464),
        Load(1024, 2048, 387): (1753, 0.9447),
    },
}

BEAM = "BEAM artifact (Apache-2.0), A100 80GB, Llama 3.3 70B, tp 4 of 2 stages, decode"
# (batch, tokens cached in all): {core MHz: (ms, J of a step)}; energies are compared as ratios only
BEAM_ROWS = {
    (1, 2048): {
        1410: (13.688, 15.876),
        1200: (13.869, 13.292),
        990: (15.436, 12.524),
        750: (20.613, 14.905),
        510: (27.751, 17.334),
    },
    (64, 2048): {
        1410: (16.087, 19.138),
        1200: (16.619, 15.211),
        990: (17.758, 14.841),
        750: (23.208, 17.007),
        510: (33.765, 20.735),
    },
    (128, 2048): {
        1410: (21.400, 26.172),
        1200: (22.902, 22.071),
        990: (26.443, 21.197),
        750: (33.281, 23.809),
        510: (46.182, 28.297),
    },
}
# the data sheet of that GPU model; all else is the A100's spec
BEAM_GPU_MODEL = {"memory": {"gb_per_s": 2039, "capacity_gb": 85.5}}

APEX = "apex_plus (MIT), H100, NCCL all-reduce"
# {GPUs: {kB: us}}
APEX_US = {
    2: {16: 9, 1024: 25, 8192: 48, 131072: 465},
    4: {16: 13, 1024: 20, 8192: 82, 131072: 611},
    8: {16: 19, 1024: 34, 8192: 80, 131072: 597},
}


def experiment() -> dict:
    """Return all of them as plain JSON values."""
    return {"subject": SUBJECT, "anchors": [asdict(anchor) for anchor in anchors()]}


def anchors() -> list[Anchor]:
    """Return all of them, each with our figure."""
    return [*_splitwise(), *_ml_energy(), *_ml_energy_2024(), *_beam(), *_apex()]


def _splitwise() -> list[Anchor]:
    anchor_list = []
    for tp, first_token_ms in SPLITWISE_PROMPT_MS.items():
        model = StepModel(GPU, "llama2-70b", tp)
        for tokens, published in first_token_ms.items():
            ours = 1e3 * model.prefill(tokens, model.top_mhz).time_s
            anchor_list.append(
                Anchor(SPLITWISE, f"tp {tp}, {tokens} prompt tokens", "time to first token", "ms", published, ours, OLD)
            )
        for batch, token_ms in ((1, SPLITWISE_TOKEN_MS), (64, SPLITWISE_TOKEN_BATCH_64_MS)):
            if tp in token_ms:
                ours = 1e3 * model.decode(batch, batch * (512 + 64), model.top_mhz).time_s
                anchor_list.append(
                    Anchor(SPLITWISE, f"tp {tp}, batch {batch}", "time between tokens", "ms", token_ms[tp], ours, OLD)
                )
    return anchor_list


def _ml_energy() -> list[Anchor]:
    anchor_list = []
    for model, rows in ML_ENERGY_ROWS.items():
        steps = StepModel(GPU, model.shapes, model.tp)
        for load, measured in rows.items():
            times = INFORMED if load.sequences in ML_ENERGY_USED.get(model.name, ()) else PREDICTED
            energies = SEEN if load.sequences in ML_ENERGY_SEEN.get(model.name, ()) else PREDICTED
            ours = closed_loop(steps, load)
            names = (
                ("power", "W", energies, None),
                (OUTPUT, "tokens/s", times, None),
                ("median time between tokens", "ms", times, None),
                (ENERGY, "J/token", energies, cancelled_percent(measured, ours)),
            )
            anchor_list += [
                Anchor(ML_ENERGY, model.at_most(load.sequences), quantity, unit, published, our, role, cancelled)
                for (quantity, unit, role, cancelled), published, our in zip(names, measured, ours)
            ]
    return anchor_list


def cancelled_percent(published: Measured, ours: Measured) -> float:
    """Return the smaller error of power and of tokens/s where both are off in one direction; else 0."""
    power, output = (100 * abs(our / their - 1) for our, their in zip(ours[:2], published))
    return min(power, output) if (ours[0] > published[0]) == (ours[1] > published[1]) else 0.0


def _ml_energy_2024() -> list[Anchor]:
    rows = {}  # by model and sequences: (tokens/s, J a token), published and ours
    for model, loads in ML_ENERGY_2024_ROWS.items():
        steps = StepModel(GPU, model.shapes, model.tp)
        for load, published in loads.items():
            ours = closed_loop(steps, load)
            rows[model, load.sequences] = published, (ours.output_tps, ours.token_j)
    reference = {sequences: both for (model, sequences), both in rows.items() if model.name == ML_ENERGY_2024_RATIO_TO}
    anchor_list = []
    for (model, sequences), both in rows.items():
        if model.name == ML_ENERGY_2024_RATIO_TO:
            continue
        theirs, ours = (np.divide(row, other).tolist() for row, other in zip(both, reference[sequences]))
        anchor_list += [
            Anchor(
                ML_ENERGY_2024,
                model.at_most(sequences),
                f"{quantity}, {ML_ENERGY_2024_RATIO_TO} = 1",
                "1",
                theirs[place],
                ours[place],
                OLD,
            )
            for place, quantity in enumerate((OUTPUT, ENERGY))
        ]
    return anchor_list


def closed_loop(model: StepModel, load: Load, prompt_tokens: float = ML_ENERGY_PROMPT_TOKENS) -> Measured:
    """Return what comes of a load, measured as ML.ENERGY does.

    The steady state begins when `sequences` requests have their first token, and ends when all but one more than that
    are finished.
    """
    rng = np.random.default_rng(1)
    # lengths scatter, or all requests would end together for ever
    lengths = [
        np.maximum(1, rng.gamma(4, mean / 4, load.requests)).astype(int) for mean in (prompt_tokens, load.answer_tokens)
    ]
    engine = model.at(model.top_mhz)

    def until(horizon_s: float | None = None) -> InstanceRun:
        return simulate_instance(
            engine,
            model.kv_tokens,
            np.zeros(load.requests),
            *lengths,
            max_batch=load.sequences,
            chunk_tokens=ML_ENERGY_STEP_TOKENS,
            horizon_s=horizon_s,
        )

    whole = until()
    start_s, end_s = np.sort(whole.ttft_s)[load.sequences - 1], np.sort(whole.finish_s)[-load.sequences - 2]
    early, late = until(start_s), until(end_s)
    # a request's first token has no gap before it
    early_tokens, late_tokens = (run.gap_count.sum() + np.isfinite(run.ttft_s).sum() for run in (early, late))
    tokens = late_tokens - early_tokens
    seconds, energy_j = end_s - start_s, late.energy_j - early.energy_j
    median_s = weighted_quantile(whole.gap_s, whole.gap_count, 0.5)
    return Measured(energy_j / seconds, tokens / seconds, 1e3 * median_s, energy_j / tokens)


def _beam() -> list[Anchor]:
    whole = served("llama3-70b")
    stage = replace(whole, name="llama3-70b, one of 2 stages", layers=40)
    # the host's time that the family's figures were fitted with
    model = StepModel("a100_sxm", stage, 4, BEAM_GPU_MODEL, host_s=0.001, sequence_s=0.0)
    anchor_list = []
    for (batch, context), rows in BEAM_ROWS.items():
        top = max(rows)
        ours = {mhz: model.decode(batch, context, mhz) for mhz in rows}
        anchor_list.append(
            Anchor(BEAM, f"batch {batch}, {top} MHz", "step", "ms", rows[top][0], 1e3 * ours[top].time_s, PREDICTED)
        )
        for mhz in rows:
            if mhz == top:
                continue
            time = (rows[mhz][0] / rows[top][0], ours[mhz].time_s / ours[top].time_s)
            energy = (rows[mhz][1] / rows[top][1], _energy_j(ours[mhz]) / _energy_j(ours[top]))
            anchor_list.append(Anchor(BEAM, f"batch {batch}, {mhz} MHz", f"time, {top} MHz = 1", "1", *time, INFORMED))
            anchor_list.append(Anchor(BEAM, f"batch {batch}, {mhz} MHz", f"energy, {top} MHz = 1", "1", *energy, SEEN))
    return anchor_list


def _energy_j(step: EngineStep) -> float:
    return step.time_s * step.power_w


def _apex() -> list[Anchor]:
    anchor_list = []
    for tp, latency_us in APEX_US.items():
        model = StepModel(GPU, "llama2-70b", tp)
        for kilobyte, published in latency_us.items():
            ours = 1e6 * model.all_reduce(kilobyte * 1024).latency_s
            anchor_list.append(Anchor(APEX, f"{tp} GPUs, {kilobyte} kB", "time", "us", published, ours, INFORMED))
    return anchor_list
