"""Names in a results folder that both the workflow and the report rely on."""

from dataclasses import dataclass

from kernel_dvfs_clocks.files import inside

# on a real GPU, auto is compared with the highest clocks this often
LOCKING_REPEATS = 3

# schemas of schedules and of frontiers, which are also read where nothing heavy may be imported
SCHEDULE = "kernel-dvfs/schedule/1"
ITERATION_SCHEDULE = "kernel-dvfs/iteration-schedule/1"
FRONTIER = "kernel-dvfs/frontier/1"
DEPLOYABLE = "kernel-dvfs/deployable/2"
TABLE = "kernel-dvfs/table/1"
# and of what commands print for other programs
ANSWER = "kernel-dvfs/answer/1"
PAGE = "kernel-dvfs/page/1"

# The two procedures that clocks are chosen by, from the same records; no table, figure or claim mixes them. Published:
# the first measurement of each point of one sweep, and no margin. Relied on: all that was measured for a choice, and no
# more than a walk has shown (docs/statistics.md).
PUBLISHED, RELIED_ON = "published", "relied on"

# the strict schedule, its coarse counterpart, one pair for all, and what EDP would take
STRICT = "kernel-global-waste-slack0"
PASS_STRICT = "pass-global-waste-slack0"
PASS_LOCAL = "pass-local-waste-slack0"  # each pass by itself
SINGLE = "kernel-single-waste-slack0"
EDP = "kernel-global-edp"

# ways to deploy clocks, in the table of that name; the first one's changes count as free
FREE, RUN, PASS, LAUNCH = (
    "each kernel, changes free",
    "one pair for the run",
    "a pair for each pass",
    "launch by launch, asked ahead",
)


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths of what lies in a results folder, `results/<gpu>/<workload>`."""

    folder: str

    @property
    def profile(self) -> str:
        return f"{self.folder}/profile.parquet"

    @property
    def published_profile(self) -> str:
        """The first measurement of each point of the sweep, as a profile; a table's rows are what they are, so it has
        none."""
        return f"{self.folder}/published.parquet"

    @property
    def by_clock_file(self) -> str:
        """Return what the study by clock visited, chose and showed."""
        return f"{self.folder}/by_clock.json"

    def schedule(self, name: str) -> str:
        return f"{self.folder}/{inside(f'schedules/{name}.json')}"

    @property
    def deployable_file(self) -> str:
        """Return what can be deployed at known latencies, in rows."""
        return self.schedule("deployable")

    @property
    def native_rows(self) -> str:
        """Return what the native layer counts of each kernel, beside the study's own count."""
        return f"{self.folder}/native_rows.json"

    @property
    def measured_step(self) -> str:
        """A captured step's record with what its kernels took at auto."""
        return f"{self.folder}/step-measured.json"


def published(name: str) -> str:
    """Return what the schedule of a name is called where it is chosen as published."""
    return f"{PUBLISHED}/{name}"


def iteration_name(latency_s: float) -> str:
    """Return the iteration schedule that is chosen for a latency, in `schedules/`, without the ending."""
    # twelve digits tell latencies apart, and leave out that 1000 x 0.0007 is not quite 0.7 in floats
    return f"iteration-{1e3 * latency_s:.12g}ms"


def shortest(value: float) -> str:
    """Return the shortest text that reads back as this number and no other: `0.5`, `2`."""
    return repr(float(value)).removesuffix(".0")


def parts(repeats: int, sessions: int) -> dict[str, tuple[int, int]]:
    """Return {folder: (first, last)} of the repeats of a comparison, a folder a session; one session has none of its
    own."""
    count = min(repeats, sessions)
    if count == 1:
        return {"": (0, repeats - 1)}
    return {f"session-{k}/": (k * repeats // count, (k + 1) * repeats // count - 1) for k in range(count)}


def locking(way: str, target: str, sessions: int) -> list[str]:
    """Return the comparisons of auto with a target's highest clocks locked in one way, in a results folder."""
    return [inside(f"measurements/locked-{way}/{part}{target}.json") for part in parts(LOCKING_REPEATS, sessions)]


def carried(variant: str, target: str, repeats: int, sessions: int) -> list[str]:
    """Return the comparisons of a target at another batch or degree, likewise."""
    return [inside(f"measurements/{variant}/{part}{target}.json") for part in parts(repeats, sessions)]


def fresh_repeats(schedule: str, repeats: int) -> list:
    """Return the records of a schedule's fresh repeats, in a results folder."""
    return [f"{again(schedule)}/repeat-{repeat}.json" for repeat in range(repeats)]


def again(schedule: str) -> str:
    """Return the folder of the records that measure a schedule again, in a results folder."""
    name = "validation" if schedule == STRICT else f"validation-{schedule.replace('/', '-')}"
    return inside(f"measurements/{name}")


def subject(gpu: dict) -> str:
    """Return a GPU (kind, name, slug) as captions name it: "simulated RTX 3080 Ti", or "NVIDIA H200, board 9fca33e6",
    since boards of one type differ in energy. Where a simulated GPU stands for one that a captured step ran on, its
    numbers are a forecast, and everything that shows one says so."""
    if gpu.get("forecast"):
        return f"forecast on a simulated {gpu['name']}" + (", power not measured" if gpu.get("power_modelled") else "")
    if gpu["kind"] == "nvml":
        # the slug ends with the first digits of the board's UUID
        return f"{gpu['name']}, board {gpu['slug'].rpartition('-')[2]}"
    return f"simulated {gpu['name']}" if gpu["kind"] == "simulated" else gpu["name"]
