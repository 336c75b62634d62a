"""A lock per phase where prefill and decode have GPUs of their own, against one for both, and against power caps.

python experiments/searches/phase_locks.py [-o experiments/results/phase_locks.txt]

Simulated (kernel_dvfs_serving.steps): an H200's steps at every clock. A phase's lock is the clock of least energy whose
step takes at most so much longer than at auto, which is the top clock under the board's power limit. What public work
says of an H200, and what is looked for here: power caps never bind in decode, and locks recover up to a third.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kernel_dvfs_serving.steps import StepModel

GPU, CAPS_W, SLACKS = "h200_sxm", (600, 500, 400, 300), (0.0, 0.03, 0.1)
# model, degree; of a request: prompt tokens, generated tokens
MODELS = (("llama2-7b", 1), ("llama3-70b", 4), ("mixtral-8x7b", 2))
BATCHES, CONTEXT, PROMPT, GENERATED = (1, 8, 32, 128, 256), 2000, 2000, 300


def steps(model: StepModel, batch: int | None) -> dict[int, tuple[float, float]]:
    """{clock: (s, J) of a step}: decoding a batch, or a whole prompt (None)."""
    found = {}
    for mhz in model.clocks:
        step = model.prefill(PROMPT, mhz) if batch is None else model.decode(batch, batch * CONTEXT, mhz)
        found[mhz] = step.time_s, step.power_w * step.time_s
    return found


def locked(own: dict[int, tuple[float, float]], slack: float) -> int:
    """The clock of least energy within the limit."""
    limit_s = (1 + slack) * own[max(own)][0] * (1 + 1e-9)
    return min((mhz for mhz in own if own[mhz][0] <= limit_s), key=lambda mhz: own[mhz][1])


def main() -> None:
    """Print the tables, and write them where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    lines = [f"Simulated {GPU}; context {CONTEXT} a sequence, prompts of {PROMPT}, {GENERATED} generated a request", ""]
    lines.append(f"{'model, GPUs':18s} {'phase':12s} {'W a GPU':>8s} {'binding caps, W':>18s}  " + "  ".join(
        f"lock at {100 * slack:g} %: MHz, energy" for slack in SLACKS))  # fmt: skip
    both = []
    for name, tp in MODELS:
        model = StepModel(GPU, name, tp)
        phases = {"prefill": steps(model, None)} | {f"decode {batch}": steps(model, batch) for batch in BATCHES}
        for phase, own in phases.items():
            time_s, energy_j = own[model.top_mhz]
            watts = energy_j / time_s / tp
            binding = [cap for cap in CAPS_W if watts > cap]
            told = []
            for slack in SLACKS:
                mhz = locked(own, slack)
                told.append(f"{mhz:14d} {100 * (own[mhz][1] / energy_j - 1):+8.1f} %")
            lines.append(
                f"{name + ', ' + str(tp):18s} {phase:12s} {watts:8.0f} {binding or 'none'!s:>18s}  " + "  ".join(told)
            )
        prefill = phases["prefill"]
        for batch in BATCHES:
            decode = phases[f"decode {batch}"]
            share = GENERATED / batch  # decode steps a request
            for slack in SLACKS[1:]:
                auto_j = prefill[model.top_mhz][1] + share * decode[model.top_mhz][1]
                own_j = prefill[locked(prefill, slack)][1] + share * decode[locked(decode, slack)][1]
                limits = [(1 + slack) * each[model.top_mhz][0] * (1 + 1e-9) for each in (prefill, decode)]
                kept = [mhz for mhz in model.clocks if prefill[mhz][0] <= limits[0] and decode[mhz][0] <= limits[1]]
                one_j = min(prefill[mhz][1] + share * decode[mhz][1] for mhz in kept)
                both.append(
                    f"{name + ', ' + str(tp):18s} batch {batch:<4d} {100 * slack:3.0f} %: one lock "
                    f"{100 * (one_j / auto_j - 1):+6.1f} %, a lock per phase {100 * (own_j / auto_j - 1):+6.1f} %"
                )
    lines += ["", "Energy of a request, both phases, each at most so much slower:", "", *both]
    print("\n".join(lines))
    if options.output:
        Path(options.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
