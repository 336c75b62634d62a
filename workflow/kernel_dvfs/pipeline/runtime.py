"""What a training job asks while it runs: a pipeline straggles, which plan now? Answered from the solved frontier.

runtime = Runtime(planner)
plan = runtime.set_straggler(pipeline=3, t_iter_s=34.0)     # None: the plan in force stays
plan = runtime.clear(pipeline=3)
"""

from __future__ import annotations

import math

from kernel_dvfs.errors import InputError
from kernel_dvfs.pipeline.planner import ONE_CLOCK, Plan, Planner

_MOST_S = 10**6  # of an iteration


class Runtime:
    """Plans of the pipelines that do not straggle.

    planner: its frontier is solved here, before anyone waits. base_s: iteration time without a straggler (default:
    the fastest). hysteresis: clocks change where that saves more than this share of the energy until T', so that
    noise changes nothing; a time is never ignored where the plan in force would break it.
    """

    def __init__(
        self, planner: Planner, base_s: float | None = None, hysteresis: float = 0.01, kind: str = ONE_CLOCK
    ) -> None:
        if not (math.isfinite(hysteresis) and 0 <= hysteresis < 1):
            raise InputError(f"runtime: hysteresis = {hysteresis}: expected a share from 0 to below 1")
        self.planner, self.hysteresis, self.kind = planner, hysteresis, kind
        self.base_s = float(planner.frontier.time_s[-1]) if base_s is None else base_s
        self._straggling: dict[int, float] = {}
        # without a straggler there is time for a thorough search; its plan is what comes back when all is clear
        self._base_plan = planner.plan(self.base_s, kind)
        self.plan: Plan = self._base_plan

    def set_straggler(self, pipeline: int, t_iter_s: float) -> Plan | None:
        """Pipeline `pipeline` now takes t_iter_s. The new plan of the others, or None where the old one stays.

        Raises InputError; the plan in force stays then, too.
        """
        if not (isinstance(t_iter_s, (int, float)) and 0 < t_iter_s <= _MOST_S):
            raise InputError(
                f"runtime: pipeline {pipeline}: iteration time {t_iter_s!r} s: expected a number > 0, at most {_MOST_S}"
            )
        before = dict(self._straggling)
        self._straggling[pipeline] = float(t_iter_s)
        try:
            return self._answer()
        except InputError:
            self._straggling = before
            raise

    def clear(self, pipeline: int) -> Plan | None:
        """Pipeline `pipeline` no longer straggles. Raises InputError where it was not straggling."""
        if pipeline not in self._straggling:
            known = ", ".join(map(str, sorted(self._straggling))) or "none"
            raise InputError(f"runtime: pipeline {pipeline} is no straggler; stragglers now: {known}")
        del self._straggling[pipeline]
        return self._answer()

    @property
    def iteration_s(self) -> float:
        """The time that the slowest pipeline takes."""
        return max([self.base_s, *self._straggling.values()])

    def _answer(self) -> Plan | None:
        asked_s = self.iteration_s
        if asked_s == self.base_s:
            return self._take(self._base_plan)
        if self.plan.time_s > asked_s:
            return self._take(self.planner.plan_for_straggler(asked_s, self.kind))
        enough_j = (1 - self.hysteresis) * self.plan.energy_j(asked_s)
        if self.planner.bound_j(asked_s) >= enough_j:
            return None
        plan = self.planner.plan_for_straggler(asked_s, self.kind)
        return self._take(plan) if plan.energy_j(asked_s) < enough_j else None

    def _take(self, plan: Plan) -> Plan | None:
        """`plan` from now on; None where it is in force already."""
        if plan is self.plan:
            return None
        self.plan = plan
        return plan
