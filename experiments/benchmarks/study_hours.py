"""How many hours a real GPU is measured for by a study: gpt3-xl on a fake H200, by its virtual time.

    python experiments/benchmarks/study_hours.py [--against CHECKOUT] [-o FILE]

Each checkout measures with its own code and its own config.yaml (no other sizes): the sweep, what its search asks for
beyond, and one validation of the strict schedule. The hours are what the records themselves say was spent, on the fake
NVML library's clock; no GPU is needed. Both checkouts run in one go, so the ratio is of like with like.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# run in a process of its own for each checkout, with that checkout's packages and fake board
_MEASURE = """
import json, sys, subprocess
from pathlib import Path
root, folder = Path(sys.argv[1]), Path(sys.argv[2])
sys.path[:0] = [str(root / "workflow"), str(root / "tests/fakenvml")]
import fake, yaml
from laboratory import Lab
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import ALONE
folder.mkdir(parents=True, exist_ok=True)
library = folder / "nvml"
library.mkdir()
config = load(str(root / "config.yaml")) | ALONE | {"gpu": "nvml"}
lab = Lab(fake.Boards(fake.build(library), folder / "state", "h200", time="virtual"), folder / "work", config)
(lab.folder / "config.yaml").write_text(yaml.safe_dump(config))
code = (
    "import json\\n"
    "from kernel_dvfs.plan.config import load\\nfrom kernel_dvfs.plan.study import plan\\n"
    "study = plan(load('config.yaml'), 'r')\\n"
    "print(json.dumps([study.setup.write(), study.search_options(), study.repeats]))"
)
done = lab.python(code)
assert done.returncode == 0, done.stderr
setup, options, repeats = json.loads(done.stdout)

def run(*words):
    words = [sys.executable, "-m", "kernel_dvfs", *map(str, words)]
    done = subprocess.run(words, env=lab.environment(), cwd=lab.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
run("measure", "search", "--gpu", setup, "--records", "m", "--options", json.dumps(options), "-o", "search.json")
lab.stop()
print(json.dumps({"setup": setup, "repeats": repeats, "folder": str(lab.folder)}))
"""


def hours(root: Path, folder: Path) -> tuple[dict[str, float], dict[str, float], dict[str, int]]:
    """Of a checkout: ({stage: hours}, {what they were spent on: hours}, {points and windows: how many})."""
    done = subprocess.run([sys.executable, "-c", _MEASURE, str(root), str(folder)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {root}: {done.stderr[-3000:]}")
    work = Path(json.loads(done.stdout.splitlines()[-1])["folder"])
    search = json.loads((work / "search.json").read_text())
    stage_of = {
        f"{kind}/{target}/{core}-{mem}/r{repeat}.json": each["stage"]
        for each in search["rounds"]
        for kind, target, core, mem, repeats in each["requests"]
        for repeat in repeats
    }
    spent, parts = defaultdict[str, float](float), defaultdict[str, float](float)
    counted = {"points": 0, "windows": 0}
    for name in search["records"]:
        record = json.loads((work / "m" / name).read_text())
        stage = stage_of.get(name, "sweep")
        for part, seconds in record["run"]["spent_s"].items():
            spent[stage] += seconds / 3600
            parts[part] += seconds / 3600
        counted["points"] += 1
        counted["windows"] += len(record["windows"])
    return spent, parts, counted


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="CHECKOUT", help="another checkout, measured in the same run")
    parser.add_argument("-o", "--output", metavar="FILE", default=str(ROOT / "experiments/results/study_hours.txt"))
    options = parser.parse_args()
    lines = ["gpt3-xl on a fake H200, hours by its virtual time: what is measured until clocks are chosen", ""]
    totals = []
    for name, root in (("this", ROOT), ("other", options.against and Path(options.against).resolve())):
        if root is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            stages, parts, counted = hours(root, Path(folder) / "lab")
        totals.append(sum(stages.values()))
        each, what = (", ".join(f"{key} {value:.1f}" for key, value in own.items()) for own in (stages, parts))
        lines.append(f"{name}: {totals[-1]:.1f} h ({each}); {counted['points']} points, {counted['windows']} windows")
        lines.append(f"  spent on {what}")
    if len(totals) > 1:
        lines.append(f"this over other: {totals[0] / totals[1]:.2f}")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    Path(options.output).write_text(text)


if __name__ == "__main__":
    main()
