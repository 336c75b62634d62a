"""How many minutes of a board a study takes: gpt3-xl on a fake H200, by its virtual time.

    python experiments/benchmarks/study_minutes.py [--repeats N] [--sweep-every N] [-o FILE]

The study by clock is run whole, what it chose is measured again in sessions of their own, and the paper's sweep is
measured, all with the commands that the workflow runs; no GPU is needed. Minutes are those that the fake NVML library's
clock moved. Beside them stands what `kernel-dvfs devices` promises (plan/estimate.py). --sweep-every: of each pair only
every N-th kernel, and the passes; the rest is scaled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "tests/fakenvml")]

from kernel_dvfs.measurement.visit import OPENING_S  # noqa: E402 - of this checkout

_PLAN = """
import json
from kernel_dvfs_clocks.files import parse_json
from kernel_dvfs_clocks.clocks import clocks_argument
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.estimate import study_s
from kernel_dvfs.plan.study import plan
content = load("config.yaml")
study = plan(content, "r")
measurement = parse_json(study.setup.text)["measurement"]
print(json.dumps({
    "setup": study.setup.write(),
    "options": study.by_clock_options(),
    "headline": study.headline,
    "repeats": study.repeats,
    "points": [[f"{core},{mem}", repeat, study.session_of(rank)]
               for rank, ((core, mem), repeat) in enumerate(study.points)],
    "kernels": list(study.kernels),
    "passes": list(study.passes),
    "promised_s": study_s(study, measurement, content["validation_repeats"]),
}))
"""
# the points of a sweep, in one process: what starts of commands take is no time of the board
_SWEEP = """
import json, sys
from kernel_dvfs_clocks.clocks import parse
from kernel_dvfs.measurement import job, setup, target
path, asked = sys.argv[1], json.load(open(sys.argv[2]))
own = setup.read(path)
for what, pair, repeat, session in asked:
    output = f"m/{what}/{pair.replace(',', '-')}/r{repeat}.json"
    job.measure(own, path, target.parse(own, what), parse(pair), "sweep", repeat, output, session=session)
"""


class Study:
    """gpt3-xl in a laboratory with one fake H200 on virtual time."""

    def __init__(self, folder: Path) -> None:
        import fake
        import yaml
        from laboratory import Lab

        from kernel_dvfs.plan.config import load
        from kernel_dvfs.plan.study import ALONE

        library = folder / "nvml"
        library.mkdir()
        config = load(str(ROOT / "config.yaml")) | ALONE | {"gpu": "nvml"}
        boards = fake.Boards(fake.build(library), folder / "state", "h200", time="virtual")
        self.lab = Lab(boards, folder / "work", config)
        (self.lab.folder / "config.yaml").write_text(yaml.safe_dump(config))
        self.plan = json.loads(self.run("-c", _PLAN))

    def run(self, *words: object) -> str:
        """Return what a Python program says in the laboratory; one that fails ends this one."""
        command = [sys.executable, *map(str, words)]
        done = subprocess.run(command, env=self.lab.environment(), cwd=self.lab.folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"error: {done.stderr[-3000:]}")
        return done.stdout

    def command(self, *words: object) -> None:
        """Run a kernel-dvfs command."""
        self.run("-m", "kernel_dvfs", *words)

    def now_min(self) -> float:
        """Return the time on the board's clock."""
        return float(self.lab.boards.get("now_s")) / 60

    def by_clock(self) -> tuple[float, str]:
        """Return (minutes of the study by clock, what it was)."""
        begin_min, plan = self.now_min(), self.plan
        options = json.dumps(plan["options"])
        words = ["--gpu", plan["setup"], "--records", "m", "--options", options, "-o", "b.json"]
        self.command("measure", "by-clock", *words)
        about = json.loads((self.lab.folder / "b.json").read_text())["about"]
        minutes = self.now_min() - begin_min + about["sessions"] * OPENING_S / 60
        said = f"{about['visits']} visits in {about['sessions']} sessions; {about['minutes']:.1f} by its own account"
        return minutes, said

    def again(self, repeats: int) -> tuple[float, str]:
        """Return (minutes of measuring the headline again so often, what it was)."""
        plan = self.plan
        self.command(
            "measure", "aggregate", *("--gpu", plan["setup"], "--records", "m", "--by-clock", "b.json", "-o", "p")
        )
        schedules = []
        for name in plan["headline"]:
            level, limit = name.split("-global-waste-slack")
            schedules.append(f"{name}.json")
            how = ["--granularity", level, "--scope", "global", "--objective", "waste", "--slack", limit]
            self.command("choose", "p", *how, "--walk", "b.json", "-o", schedules[-1])
        begin_min = self.now_min()
        for repeat in range(repeats):
            words = ["--gpu", plan["setup"], "--repeat", repeat, "--schedules", *schedules, "-o"]
            self.command("measure", "again", *words, *(f"v/{repeat}-{name}" for name in schedules))
        minutes = self.now_min() - begin_min + repeats * OPENING_S / 60
        chosen = [json.loads((self.lab.folder / name).read_text()) for name in schedules]
        pairs = {tuple(pair.values()) for each in chosen for pair in each["targets"].values()}
        return minutes, f"{repeats} sessions of {len(schedules)} schedules, at {len(pairs)} pairs"

    def sweep(self, every: int) -> tuple[float, str]:
        """Return (minutes of the sweep, what it was). every: of the kernels, every so-many-th; the rest is scaled."""
        plan = self.plan
        kernels, spent_min = plan["kernels"][::every], 0.0
        targets = [*(f"kernel/{name}" for name in kernels), *(f"pass/{name}" for name in plan["passes"])]
        asked = [[each, pair, repeat, session] for pair, repeat, session in plan["points"] for each in targets]
        (self.lab.folder / "asked.json").write_text(json.dumps(asked))
        begin_min = self.now_min()
        self.run("-c", _SWEEP, plan["setup"], "asked.json")
        passed_min = self.now_min() - begin_min
        for path in (self.lab.folder / "m").glob("kernel/*/*/r*.json"):
            spent = json.loads(path.read_text())["run"]["spent_s"]
            # what a kernel takes beside the passes, which all of a pair share
            spent_min += (sum(spent.values()) - spent["passes"] - spent["preparing"] - spent["choosing"]) / 60
        left = len(plan["kernels"]) / len(kernels) - 1
        said = f"{len(asked)} records" + (f", scaled to all {len(plan['kernels'])} kernels" if left else "")
        return passed_min + left * spent_min, said


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, metavar="N", help="of measuring again (default: those of config.yaml)")
    parser.add_argument("--sweep-every", type=int, default=1, metavar="N", help="every N-th kernel (default: 1, all)")
    parser.add_argument("-o", "--output", metavar="FILE", default=str(ROOT / "experiments/results/study_minutes.txt"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = Study(Path(folder))
        try:
            repeats = options.repeats or study.plan["repeats"]
            scale = study.plan["repeats"] / repeats
            by_clock, (again_min, again) = study.by_clock(), study.again(repeats)
            found = {
                "by clock": by_clock,
                "measuring again": (
                    scale * again_min,
                    again + (f", scaled to {scale * repeats:g}" if scale != 1 else ""),
                ),
                "sweep": study.sweep(options.sweep_every),
            }
        finally:
            study.lab.stop()
    promised_s = study.plan["promised_s"]
    lines = ["gpt3-xl on a fake H200, minutes of the board by its virtual time; promised: by kernel-dvfs devices", ""]
    for name, (minutes, what) in found.items():
        promised_min = promised_s[name] / 60
        lines.append(f"{name:16s}{minutes:6.1f}, promised {promised_min:6.1f} ({minutes / promised_min:.2f}): {what}")
    minutes, promised_min = sum(own for own, _ in found.values()), sum(promised_s[name] for name in found) / 60
    lines.append(f"{'in all':16s}{minutes:6.1f}, promised {promised_min:6.1f} ({minutes / promised_min:.2f})")
    rest = ", ".join(f"{name} {s / 60:.0f}" for name, s in promised_s.items() if name not in found and s)
    lines += ["", f"not measured here, promised: {rest}"] if rest else []
    lines += [
        "",
        f"The fake opens a measuring process in no time; {OPENING_S:g} s a session, as a real one takes, are added.",
    ]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    Path(options.output).write_text(text)


if __name__ == "__main__":
    main()
