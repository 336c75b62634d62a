"""Published measurements of serving 70B models, and the same from the simulated GPU, each with its error.

Figures are quoted with their source; none of them is ours. Some have informed the model, where they are physics of a
kernel family and not a serving result: the times (not the energies) of BEAM's clock sweep the bytes per clock and the
overlap of `linear` in gpu/specs/families.yaml and its half-filled tokens, apex_plus the latency of an all-reduce, two
of ML.ENERGY's four rows the host's time for each sequence (steps.SEQUENCE_S).
No energy has been fitted, but the form of one was chosen with ML.ENERGY's and BEAM's in sight: kernels that wait for
weights or cache take a plain stream's energy per byte (steps.StepModel.kernel). Everything else is a prediction.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from kernel_dvfs_serving.make_profile import InstanceRun, simulate_instance, weighted_quantile
from kernel_dvfs_serving.models import served
from kernel_dvfs_serving.steps import EngineStep, StepModel

SUBJECT = "simulated H100 SXM and A100 SXM"

# informed: a family's figure rests on it. seen: not fitted, but the model's form was chosen with it in sight.
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


SPLITWISE = "splitwise-sim data (MIT), H100, Llama2-70B, vLLM of 2023"
# median of five runs, ms: {tp: {prompt tokens: first token}}, {tp: between tokens at batch 1}
SPLITWISE_PROMPT_MS = {
    2: {512: 83.8, 1024: 158.0, 2048: 310.3, 8192: 1339.8},
    4: {512: 59.6},
    8: {512: 53.4, 1024: 77.9, 2048: 136.8, 8192: 844.9},
}
SPLITWISE_TOKEN_MS = {2: 37.0, 4: 29.7, 8: 29.8}
SPLITWISE_TOKEN_BATCH_64_MS = {4: 52.4}

ML_ENERGY = "ML.ENERGY leaderboard, H100, Llama 3.1 70B, tp 4"
# sequences at most: (W of all GPUs, tokens/s, median ms between tokens, J per token)
ML_ENERGY_ROWS = {
    8: (1765, 470, 16.6, 3.759),
    64: (2002, 2511, 22.4, 0.797),
    256: (2354, 4915, 39.8, 0.479),
    1024: (2548, 6827, 105.6, 0.373),
}
# of these, the times of which informed steps.SEQUENCE_S; the others were left out
ML_ENERGY_USED = (64, 256)
# lengths of its requests are not with the figures: assumed
ML_ENERGY_TOKENS = (300, 500)

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
    return [*_splitwise(), *_ml_energy(), *_beam(), *_apex()]


def _splitwise() -> list[Anchor]:
    anchor_list = []
    for tp, first_token_ms in SPLITWISE_PROMPT_MS.items():
        model = StepModel("h100_sxm", "llama2-70b", tp)
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
    model = StepModel("h100_sxm", "llama3-70b", 4)
    anchor_list = []
    for batch, published_row in ML_ENERGY_ROWS.items():
        our_row = _closed_loop(model, batch)
        role = INFORMED if batch in ML_ENERGY_USED else PREDICTED
        names = (
            ("power", "W", SEEN),
            ("output", "tokens/s", role),
            ("median time between tokens", "ms", role),
            ("energy", "J/token", SEEN),
        )
        anchor_list += [
            Anchor(ML_ENERGY, f"at most {batch} sequences", quantity, unit, published_value, our_value, role)
            for (quantity, unit, role), published_value, our_value in zip(names, published_row, our_row)
        ]
    return anchor_list


def _closed_loop(model: StepModel, batch: int) -> tuple[float, float, float, float]:
    """Return (W, output tokens/s, median ms between tokens, J per token) with `batch` requests always there."""
    count = 6 * batch
    rng = np.random.default_rng(1)
    # lengths scatter, or all requests would end together for ever
    lengths = [np.maximum(1, rng.gamma(4, mean / 4, count)).astype(int) for mean in ML_ENERGY_TOKENS]
    engine = model.at(model.top_mhz)

    def until(horizon_s: float | None = None) -> InstanceRun:
        return simulate_instance(
            engine, model.kv_tokens, np.zeros(count), *lengths, max_batch=batch, chunk_tokens=2048, horizon_s=horizon_s
        )

    end_s = until().end_s
    # between a start with all prompts at once and an end with ever fewer sequences
    early, late = until(0.3 * end_s), until(0.7 * end_s)
    tokens = late.gap_count.sum() - early.gap_count.sum()
    seconds, energy_j = late.end_s - early.end_s, late.energy_j - early.energy_j
    steady = slice(len(early.gap_s), None)
    median_s = weighted_quantile(late.gap_s[steady], late.gap_count[steady], 0.5)
    return energy_j / seconds, tokens / seconds, 1e3 * median_s, energy_j / tokens


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
    for tp, time_us in APEX_US.items():
        model = StepModel("h100_sxm", "llama2-70b", tp)
        for kilobyte, published in time_us.items():
            ours = 1e6 * model.all_reduce(kilobyte * 1024).latency_s
            anchor_list.append(Anchor(APEX, f"{tp} GPUs, {kilobyte} kB", "time", "us", published, ours, INFORMED))
    return anchor_list
