"""The packing router against the tuned static plan: J per token served in time, promises kept, and their ratio.

    python experiments/benchmarks/serving_packing.py                  # a coding-like and a conversation-like hour
    python experiments/benchmarks/serving_packing.py --no-ladder --day --conv AzureLLMInferenceTrace_conv.csv

Both are tuned (degree, clock, servers; replays decide) on a trace of one seed and replayed on another that they have
not seen; the ladder, each part of packing after the other, is tuned on the first. Troubled, for both: a router's delay
of 20 ms, KV caches that grow with the answers and pre-empt where they are full, and the first server lost half way;
--spare 1 tunes both so that they keep the promise without one of their servers. The day is 24 slots of 5 minutes with
the 1.7 / 3.5 of peak to mean and to least load that conversation has; --conv adds a trace of one's own, tuned on its
first half and shown on the second. Every figure is simulated. It makes its profile (Llama2-70B on H100), and prints CPU
seconds.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

OWN = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(OWN / "workflow"))

from kernel_dvfs_serving.machine import machine  # noqa: E402
from kernel_dvfs_serving.make_profile import profile_rows  # noqa: E402
from kernel_dvfs_serving.packing import LADDER, PARTS, Parts, Static  # noqa: E402
from kernel_dvfs_serving.profile import read_profile, write_profile  # noqa: E402
from kernel_dvfs_serving.replay import Replayer  # noqa: E402
from kernel_dvfs_serving.report.share import plan_in_words  # noqa: E402
from kernel_dvfs_serving.requests import CLASSES  # noqa: E402
from kernel_dvfs_serving.system import Settings  # noqa: E402
from kernel_dvfs_serving.trace import Trace, hours, make_trace, read_trace  # noqa: E402
from kernel_dvfs_serving.tuned import Tuner, replayed  # noqa: E402

CLOCKS = [345, 1000, 1300, 1600, 1980]
SERVERS = 12
DAY_RATE = 6.0  # requests/s in the mean


def halves(trace: Trace) -> tuple[Trace, Trace]:
    """The first and the second half of a trace's time: to tune on one, and to see on the other what it is worth."""
    middle_s, found = trace.span_s / 2, []
    for start_s, own in ((0.0, trace.arrival_s < middle_s), (middle_s, trace.arrival_s >= middle_s)):
        arrays = trace.arrival_s[own] - start_s, trace.input_tokens[own], trace.output_tokens[own]
        found.append(make_trace(*arrays, f"half of {trace.subject}", middle_s))
    return found[0], found[1]


def day(seed: int, slot_s: int = 300) -> Trace:
    """A synthetic day in two hours: 24 slots whose rates follow one wave, about as conversation's do."""
    hill = 0.5 * (1 + np.cos(2 * np.pi * (np.arange(24) - 14) / 24))
    rates = 0.486 + (1.7 - 0.486) * hill**1.35
    rates *= np.exp(0.08 * np.random.default_rng(seed).standard_normal(24)) / rates.mean()
    parts = [hours(DAY_RATE * rate, 100 * seed + k, slot_s, "conversation", 0.2) for k, rate in enumerate(rates)]
    arrival_s = np.concatenate([part.arrival_s + k * slot_s for k, part in enumerate(parts)])
    tokens = [np.concatenate([getattr(part, name) for part in parts]) for name in ("input_tokens", "output_tokens")]
    return make_trace(arrival_s, *tokens, "synthetic day pressed into two hours", 24 * slot_s)


def said(found: dict) -> str:
    """An outcome in a line."""
    lost = f" ({found['kept_lost_percent']:.2f} with one lost)" if "kept_lost_percent" in found else ""
    return (
        f"{found['j_per_token_in_time']:7.4f} J/token, kept {found['kept_percent']:6.2f} %{lost}, "
        f"{plan_in_words(found)}, TTFT P99 {found['ttft_p99_s']:.2f} s, {found['server_hours']:.2f} server-hours"
    )


def show(name: str, seen: Trace, unseen: Trace, replayer: Replayer, own: Settings, options: argparse.Namespace) -> None:
    """Both plans tuned on the trace that is seen, its ladder, and both on the other."""
    begun = time.process_time()

    def tuned(label: str, servers: int, parts: Parts | None, static: dict | None = None) -> tuple[Static, dict] | None:
        tuner = Tuner(replayer, seen, replace(own, servers=servers), parts)
        found = tuner.frontier((options.keep,))
        if not found:
            print(f"{name:18} {label:26} keeps {options.keep:g} % nowhere")
            return None
        best = found[0]
        ratio = best["j_per_token_in_time"] / static["j_per_token_in_time"] if static else 1.0
        print(f"{name:18} {label:26} {said(best)} | ratio {ratio:.3f}", flush=True)
        return tuner.plan_of(best), best

    first = tuned("tuned static plan", SERVERS, None)
    if first is None:
        return
    fixed, static = first
    steps = {"packing": PARTS} if options.no_ladder else LADDER
    plans = {parts: tuned(label, static["servers"], parts, static) for label, parts in steps.items()}
    packing = plans[PARTS]
    for label, changed in (
        ("unseen", {}),
        ("unseen, delay, pre-empts", {"route_s": 0.02}),
        ("unseen, troubled", {"route_s": 0.02, "fails_s": unseen.span_s / 2}),
    ):
        if packing is None:
            break
        under = replace(own, preempts=bool(changed))
        runs = [replayed(replayer, unseen, replace(plan, **changed), under) for plan in (fixed, packing[0])]
        for kind, found in zip(("static", "packing"), runs):
            preempted = f", {found['events'].get('pre-empted', 0)} pre-empted" if changed else ""
            print(f"{name:18} {f'{label}: {kind}':33} {said(found)}{preempted}")
        ratio = runs[1]["j_per_token_in_time"] / runs[0]["j_per_token_in_time"]
        kept = min(found["kept_percent"] for found in runs) >= own.promise_percent
        print(f"{name:18} {label:26} packing / static {f'{ratio:.3f}' if kept else 'promise broken'}", flush=True)
    print(f"{name:18} {time.process_time() - begun:.0f} s of CPU", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="/tmp/serving_packing_profile.csv", help="made where it is not there")
    parser.add_argument("--conv", help="a trace of one's own")
    parser.add_argument("--day", action="store_true")
    parser.add_argument("--no-ladder", action="store_true")
    parser.add_argument("--only", nargs="*", help="of the traces")
    parser.add_argument("--keep", type=float, default=99.4, help="percent that packing and static plan are tuned to")
    parser.add_argument("--spare", type=int, default=0, help="servers without which both keep it (default: 0)")
    options = parser.parse_args()
    if not Path(options.profile).exists():
        write_profile(options.profile, profile_rows("h100_sxm", "llama2-70b", [2, 4, 8], CLOCKS, CLASSES, requests=100))
    profile, own = read_profile(options.profile), Settings(servers=SERVERS, spare=options.spare)
    replayer = Replayer(machine(profile, profile.gpu, profile.model), profile)
    traces = {
        "coding hour": tuple(hours(2.0, seed, 3600, "coding", 0.3, 4) for seed in (1, 2)),
        "conversation hour": tuple(hours(5.5, seed, 3600, "conversation", 0.3) for seed in (1, 2)),
    }
    if options.day:
        traces["day"] = day(1), day(2)
    if options.conv:
        traces["own trace"] = halves(read_trace(options.conv))
    for name in options.only or traces:
        show(name, *traces[name], replayer, own, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
