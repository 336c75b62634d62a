"""How far a run is: the stages of a study, what is done of each, and how long the rest takes.

Knows names of rules and a clock, nothing of Snakemake's log records, streams or terminals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

# Stages in the order of a run, each with the first letters of its rules' names. The longest beginning decides:
# compare_locked is measured, compare_gpus is part of the report.
STAGES: Mapping[str, tuple[str, ...]] = {
    "setup": ("write_setup", "build_native", "kernels", "import_table"),
    "measure": ("measure", "compare_locked"),
    "search": ("search",),
    "profile": ("pool_records",),
    "choose": ("choose", "map_headline"),
    "validate": ("validate",),
    "carry over": ("carry_over", "sweep_variant", "choose_variant", "validate_variant"),
    "tables": ("table_",),
    "figures": ("fig", "headline_map"),
    "studies": ("pipeline", "serving"),
    "report": ("report", "compare", "comparison"),
}
OTHER = "other"
# rules that only name what is wanted: no work, so not counted
_TARGETS = frozenset(("all", "setup", "native", "measurements", "profile", "choose", "report", "pipeline", "serving"))
# A stage has a rate once this share of it is done and it has taken this long. Before that a first slow job, or a
# quick one, would give an estimate that is off by a factor.
_LEAST_SHARE, _LEAST_S = 0.05, 10.0


@cache
def stage_of(rule: str) -> str:
    """The stage that a rule belongs to; `other` where no beginning fits."""
    fits = [(len(start), stage) for stage, starts in STAGES.items() for start in starts if rule.startswith(start)]
    return max(fits)[1] if fits else OTHER


@dataclass(slots=True)
class _Stage:
    """Counts of one stage. A finished job is charged the time since the job before it finished, whichever stage that
    was: so the charges of all stages add up to the time of the run, however many jobs run side by side."""

    name: str
    total: int = 0  # jobs known
    done: int = 0  # jobs finished
    charged_s: float = 0.0  # time charged to finished jobs
    began_s: float | None = None  # clock at its first job
    ended_s: float = 0.0  # clock at its last finished job so far
    failed: set[int] = field(default_factory=set)  # jobs that failed and did not finish later
    told_begin: bool = False  # in a log
    told_end: bool = False

    @property
    def left(self) -> int:
        return max(0, self.total - self.done - len(self.failed))

    @property
    def job_s(self) -> float | None:
        """Time of one job; None as long as too little is done to tell."""
        if self.done < _LEAST_SHARE * self.total or self.charged_s < _LEAST_S:
            return None
        return self.charged_s / self.done

    def __str__(self) -> str:
        failed = f" ({len(self.failed):,} failed)" if self.failed else ""
        return f"{self.name} {self.done:,} of {self.total:,}{failed}"


class Progress:
    """State of one run. Every time is a reading of one and the same clock, in seconds."""

    def __init__(self) -> None:
        self._stages = {name: _Stage(name) for name in (*STAGES, OTHER)}
        self._totals: dict[str, int] = {}  # of each rule, targets included
        self._rules: dict[int, str] = {}  # of each job that was started
        self._seen: dict[str, int] = {}  # jobs started of each rule
        self._finished: set[int] = set()
        self._all_jobs = 0  # as the run counts them, whatever their rules
        self._last_s = 0.0  # when a job last ended; before, when the first was planned

    @property
    def planned(self) -> bool:
        """Whether it is known what is to be done."""
        return bool(self._totals)

    @property
    def complete(self) -> bool:
        """Whether all that is known is done."""
        return not self._unnamed and all(stage.done >= stage.total for stage in self._shown())

    @property
    def worked(self) -> bool:
        """Whether any job is done."""
        return bool(self._finished)

    def close(self) -> None:
        """The run has ended well: jobs that were planned and not started had nothing to do after a checkpoint."""
        for stage in self._stages.values():
            stage.total = stage.done
        self._all_jobs = 0

    def plan(self, jobs: Mapping[str, int], now_s: float) -> None:
        """Take up how many jobs each rule has. A total only grows."""
        if not self.planned:
            self._last_s = now_s
        for rule, count in jobs.items():
            self._raise_total(rule, count)

    def count_all(self, total: int) -> None:
        """Take up how many jobs there are in all: after a checkpoint they are more, of rules not yet known."""
        self._all_jobs = max(self._all_jobs, total)

    def start(self, job: int, rule: str, now_s: float) -> None:
        """A job begins."""
        if not self.planned:
            self._last_s = now_s
        if job not in self._rules:
            self._rules[job] = rule
            self._seen[rule] = self._seen.get(rule, 0) + 1
            self._raise_total(rule, self._seen[rule])
        if (stage := self._stage(rule)) and stage.began_s is None:
            stage.began_s = now_s

    def finish(self, job: int, now_s: float) -> None:
        """A job is done. Told twice, it counts once."""
        stage = self._stage(self._rules.get(job))
        if stage is None or job in self._finished:
            return
        self._finished.add(job)
        stage.failed.discard(job)
        stage.done += 1
        stage.total = max(stage.total, stage.done)
        stage.charged_s += now_s - self._last_s
        stage.ended_s = self._last_s = now_s

    def fail(self, job: int, now_s: float) -> None:
        """A job has failed; it may be started again."""
        stage = self._stage(self._rules.get(job))
        if stage is not None and job not in self._finished:
            stage.failed.add(job)
            self._last_s = now_s

    def line(self, now_s: float, elapsed_s: float, columns: int | None = None) -> str:
        """`measure 1,207 of 3,210 · choose 0 of 29   2 min 10 s, measure: about 3 min left`.

        columns: the widest that it may be. Too wide, it leaves out the stages that are done, then the counts of those
        that have not begun, and is cut in the end.
        """
        tail = "   " + ", ".join(filter(None, [duration(elapsed_s), self._left(now_s)]))
        stages = self._shown()
        more = [f"{self._unnamed:,} more"] if self._unnamed else []
        current = [stage for stage in stages if stage.left or stage.failed] or stages[-1:]
        begun = [stage for stage in current if stage.began_s is not None]
        waiting = [stage.name for stage in current if stage.began_s is None]
        then = [f"then {', '.join(waiting)}"] if waiting else []
        text = ""
        for parts in ([*stages, *more], [*current, *more], [*begun, *then], begun):
            text = " · ".join(map(str, parts)) + tail
            if columns is None or len(text) <= columns:
                return text
        return text[: columns - 1] + "…" if columns else text

    def news(self) -> Iterable[str]:
        """Lines for a log: each stage that began, and each that is done, once."""
        for stage in self._shown():
            if stage.began_s is not None and not stage.told_begin:
                stage.told_begin = True
                yield f"{stage.name}: begins, {_jobs(stage.total)}"
            # jobs that a checkpoint added may belong to any stage
            if stage.total and stage.done == stage.total and not stage.told_end and not self._unnamed:
                stage.told_end = True
                yield f"{stage.name}: done, {_jobs(stage.total)} in {duration(stage.ended_s - (stage.began_s or 0.0))}"

    @property
    def _unnamed(self) -> int:
        """Jobs that are known to exist, but not of which rule."""
        return max(0, self._all_jobs - sum(self._totals.values()))

    def _shown(self) -> list[_Stage]:
        return [stage for stage in self._stages.values() if stage.total]

    def _stage(self, rule: str | None) -> _Stage | None:
        return None if rule is None or rule in _TARGETS else self._stages[stage_of(rule)]

    def _raise_total(self, rule: str, count: int) -> None:
        more = count - self._totals.get(rule, 0)
        if more > 0:
            self._totals[rule] = count
            if stage := self._stage(rule):
                stage.total += more

    def _left(self, now_s: float) -> str:
        """What the rest takes, at the rate of each stage; where a stage has none yet, of those that have one."""
        unfinished = [stage for stage in self._shown() if stage.left]
        rated = [(stage, stage.job_s) for stage in unfinished if stage.job_s is not None]
        if not rated:
            return ""
        left_s = sum(stage.left * job_s for stage, job_s in rated)
        # jobs that run have done a part of their work: of one job's time, so that an overdue one changes no more
        left_s -= min(now_s - self._last_s, max(job_s for _, job_s in rated))
        text = f"about {rough(left_s)} left"
        if len(rated) < len(unfinished) or self._unnamed:
            text = f"{', '.join(stage.name for stage, _ in rated)}: {text}"
        return text


def duration(seconds: float) -> str:
    """`40 s`, `2 min 10 s`, `2 h 5 min`, `3 d 4 h`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def rough(seconds: float) -> str:
    """A duration no finer than an estimate is: in steps of 10 s below a minute, of a minute below ten hours."""
    if seconds < 55:
        return f"{max(1, round(seconds / 10)) * 10} s"
    if seconds >= 10 * 3600:
        return f"{round(seconds / 3600)} h"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _jobs(count: int) -> str:
    return f"{count:,} job" + "s" * (count != 1)
