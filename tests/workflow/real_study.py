"""Studies of a step beside fake boards: of a record made by hand, and of one that a job captures."""

import csv
import json
import re
import shutil

from reduced_study import ROOT, clone, planned, snakemake

# a captured step of five kernels in three sections, and the step as a whole: their number proves nothing
HAND_MADE = ROOT / "tests/workload/steps/hand_made.json"
REAL = (
    "gpu=nvml:0",
    "grid={core_mhz: [1500], mem_mhz: [2201], auto: true}",
    "auto_repeats=2",
    "sessions=2",
    "limits_percent=[0, 1]",
    "data_parallel_batches=[]",
    "tensor_parallel_degrees=[]",
    *("window_s=2", "windows=2", "max_windows=2", "energy_ci_percent=20", "warmup_s=0.1"),
)
KERNELS, PASSES = 5, 4
TARGETS = KERNELS + PASSES
POINTS = 5 * TARGETS
SLUG = "simulated-h200-on-a-fake-nvml-fa4e0000"
# of the study that captures
FOLDER = f"results/{SLUG}/step-train-make-step"
# what a user's file has; the comment is to be edited
TRAIN = 'def make_step():\n    # a remark\n    return "captured.json"\n'
# appended to the clone's own module
CAPTURING = '''

def capture(source, name="", results_dir="results", say=print, keep="", share=False):
    """A test's: the user's function names the record of what would be captured."""
    return steps.read(framework.function_of(source)())
'''


class Real:
    """A clone beside fake boards."""

    workload = "workload={step: hand_made.json, code: train.py:make_step}"

    @classmethod
    def unmeasured(cls, folder, library):
        """A new clone in a folder, beside boards of its own."""
        directory = clone(folder / "clone")
        # copies: one stands for the native library, which a test changes
        for path in (ROOT / "tests/fakenvml/simulated_load.py", HAND_MADE):
            shutil.copy2(path, directory)
        (directory / "train.py").write_text("def make_step():\n    return None\n")  # the fake has kernels of its own
        made = cls.beside_boards(folder, library)
        made.build("first sources")
        return made

    @classmethod
    def beside_boards(cls, folder, library):
        """The clone in a folder, beside two new boards on virtual time."""
        import fake

        boards = fake.Boards(library, folder / "boards.state", "h200,h200", time="virtual")
        boards.set(board=1, time="virtual")
        return cls(folder / "clone", boards)

    @classmethod
    def found(cls, folder, library):
        """The clone and the boards that are in a folder."""
        import fake

        return cls(folder / "clone", fake.Boards(library, folder / "boards.state", ""))

    def __init__(self, directory, boards):
        self.directory, self.boards = directory, boards
        self.locks = boards.path.parent / "locks"
        self.locks.mkdir(exist_ok=True)

    def environment(self, **more) -> dict:
        return self.boards.environment(
            KERNEL_DVFS_LOCK_DIR=str(self.locks),
            # as seen from the clone, as the native library is: Snakemake compares names of inputs
            KERNEL_DVFS_TEST_LOAD="simulated_load.json",
            **more,
        )

    def build(self, sources: str) -> None:
        """The record of a build: of these sources, it gave the library that lies there."""
        import fake

        library = self.directory / "simulated_load.py"
        path = fake.build_record(self.directory, library, source_sha256=sources)
        record = json.loads(path.read_text())
        record["library"]["file"] = library.name  # the folder is copied
        path.write_text(json.dumps(record))

    def run(self, *targets, config=(), environment=None, **more):
        config = (*REAL, self.workload, *config)
        return snakemake(self.directory, *targets, config=config, env=environment or self.environment(), **more)

    def planned(self, *targets, config=(), environment=None) -> dict:
        config = (*REAL, self.workload, *config)
        jobs = planned(self.directory, *targets, config=config, env=environment or self.environment())
        measured = {rule: count for rule, count in jobs.items() if re.match("measure_.+_r", rule)}
        return {rule: count for rule, count in jobs.items() if rule not in measured} | (
            {"measure": sum(measured.values())} if measured else {}
        )

    def records(self, slug=SLUG) -> list:
        found = self.directory.glob(f"results/{slug}/*/measurements/*/*/*/r*.json")
        records = [json.loads(path.read_text()) for path in found]
        began = {}  # of each measuring process, its first point
        for run in (record["run"] for record in records):
            began[run["run_id"]] = min(run["started_utc"], began.get(run["run_id"], run["started_utc"]))
        return sorted(records, key=lambda record: (began[record["run"]["run_id"]], record["run"]["order"]))

    def is_restored(self) -> bool:
        return self.boards.locks == ("none", "none") and not list(self.locks.glob("*.json"))


class Stepped(Real):
    """A clone that studies the step of train.py, which a job captures: that reads what the user's function names."""

    workload = "workload=step:train.py:make_step"

    @classmethod
    def unmeasured(cls, folder, library):
        made = super().unmeasured(folder, library)
        shutil.copy2(HAND_MADE, made.directory / "captured.json")
        (made.directory / "train.py").write_text(TRAIN)
        with open(made.directory / "workflow/kernel_dvfs_step/capturing.py", "a") as file:
            file.write(CAPTURING)
        return made

    def table(self, name) -> list:
        with open(self.directory / FOLDER / f"tables/{name}.csv", newline="") as file:
            return list(csv.DictReader(file))

    def times(self) -> dict:
        return {path: path.stat().st_mtime_ns for path in (self.directory / FOLDER).rglob("*") if path.is_file()}
