"""Joules of a training's steps, summed over the boards of all its ranks, for a log; and its steps told to who tunes it.

    energy = Energy()
    energy.begin()
    for number, batch in enumerate(data, start=1):
        train(batch)
        energy.step(number)
        if number % 10 == 0:
            log(energy.since(number, tokens=10 * batch.numel()))
    energy.end()

Ranks are those of torch.distributed, where it is initialised: `since` then is for all of them, as a collective is.
"""

from __future__ import annotations

import math
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from kernel_dvfs_clocks.errors import InputError, one_line
from kernel_dvfs_deploy.marks import tell_step
from kernel_dvfs_hooks.reader import Reader

# which of several verdicts is told: that of the worst
WORST = ("counter", "disturbed", "unstable", "ok")
_MOVE_S, _ASKED_EVERY_S = 0.5, 0.02  # a counter moves within that, and is asked so often whether it has


@dataclass(frozen=True, slots=True)
class RankStretch:
    """What one rank has seen since the last one."""

    board: str  # host and UUID; "" where it cannot be read
    steps: int
    time_s: float
    tokens: float
    power_w: float | None  # of its board
    is_enough: bool  # whether its counter has moved often enough
    verdict: str
    reasons: list[str]


class Energy:
    """gpu: UUID or index of this rank's board; default: that of torch's device, or the only one. say: called with a
    line for the user, on the first rank. A board that cannot be read ends no training: the log goes without it."""

    def __init__(self, gpu: str = "", say: Callable[[str], object] | None = None) -> None:
        self._gpu = gpu
        self._say = say or (lambda line: print(f"kernel-dvfs: {line}", file=sys.stderr, flush=True))
        self._reader: Reader | None = None
        self._first, self._since_s, self._tokens = 0, 0.0, 0.0  # of the stretch under way
        self._last_verdict = "ok"
        self._tells = True
        self.total_j = 0.0  # of all that `since` has told since it was begun; NaN where a part was not counted

    def begin(self, number: int = 0) -> None:
        """So many steps are done, and the next one begins: not before the board is watched, since a mean of what comes
        later is not what a training draws as it starts."""
        if self._reader is None:
            self._reader = Reader(self._gpu or _of_torch())
            self.total_j = 0.0
        with suppress(InputError):  # `since` says why
            self._reader.begin()
        self._first, self._since_s, self._tokens = number, time.monotonic(), 0.0

    def step(self, number: int) -> None:
        """So many steps are done: who tunes the training, or runs it at clocks, is told."""
        if self._tells:
            try:
                tell_step(number)
            except InputError as error:
                self._tells = False
                self._say(one_line(str(error)))

    def since(self, number: int, tokens: float = 0.0, last: bool = False) -> dict[str, Any]:
        """Return {name: value} for a log, the same on all ranks: energy_j_per_step, power_w, tokens_per_j,
        energy_verdict.

        Empty while too little was counted since the last time; all of it is in the next one then. number: of steps
        done; tokens: of this rank since the last call, 0 where they are not known; last: none follows. The energy is
        that of all that went on meanwhile: a checkpoint and an evaluation among them.
        """
        if number > self._first:  # tokens of what went before are of no step that is watched
            self._tokens += tokens
        now_s = time.monotonic()  # here the next stretch begins: no time falls in between
        stretches = _gathered(self._stretch(number, now_s, last))
        if not stretches[0].steps or not (last or all(stretch.is_enough for stretch in stretches)):
            return {}
        self._first, self._since_s, self._tokens = number, now_s, 0.0
        if self._reader:
            self._reader.next()
        metrics = summed(stretches)
        self._tell(metrics.pop("reason"), metrics["energy_verdict"])
        self.total_j += stretches[0].steps * metrics.get("energy_j_per_step", math.nan)
        return metrics

    def say(self, number: int, metrics: Mapping[str, Any]) -> None:
        """Say, on the first rank, what `since` has told, where there is no log that takes it."""
        if _rank() == 0 and "power_w" in metrics:
            a_joule = f", {metrics['tokens_per_j']:.4g} tokens a joule" if "tokens_per_j" in metrics else ""
            self._say(
                f"step {number}: {metrics['energy_j_per_step']:.4g} J a step, {metrics['power_w']:.4g} W{a_joule}: "
                f"{metrics['energy_verdict']}"
            )

    def end(self) -> None:
        """Watch no more."""
        if self._reader:
            self._reader.close()
            self._reader = None

    def _stretch(self, number: int, now_s: float, last: bool) -> RankStretch:
        steps, time_s = number - self._first, now_s - self._since_s
        try:
            if self._reader is None:
                raise InputError("the board is not watched: begin() was not called")
            read = self._reader.so_far()
            # none follows that a stretch could join in which the counter has not moved: it waits for that
            while last and steps and read["power_w"] is None and read["verdict"] != "counter":
                if time.monotonic() >= now_s + _MOVE_S:
                    break
                time.sleep(_ASKED_EVERY_S)
                read = self._reader.so_far()
            board = f"{socket.gethostname()} {self._reader.uuid}"
        except InputError as error:
            board, read = "", {"power_w": None, "is_enough": True, "verdict": "counter", "reasons": [str(error)]}
        return RankStretch(board, steps, time_s, self._tokens, **read)

    def _tell(self, reason: str, verdict: str) -> None:
        """Say why a number is not to be believed, once, where the verdict changes."""
        last_verdict, self._last_verdict = self._last_verdict, verdict
        if verdict not in ("ok", last_verdict) and _rank() == 0:
            self._say(f"energy of the steps: {verdict}: {reason}")


def summed(stretches: Sequence[RankStretch]) -> dict[str, Any]:
    """Return what a log gets of the stretches of all ranks, and the `reason` of its verdict. A board that several ranks
    share counts once, each for as long as it was watched; where one cannot be read, or its counter is wrong, there is
    no sum."""
    rank, worst = min(enumerate(stretches), key=lambda numbered: WORST.index(numbered[1].verdict))
    reason = "; ".join(worst.reasons)
    judgement = {"energy_verdict": worst.verdict, "reason": f"rank {rank}: {reason}" if len(stretches) > 1 else reason}
    boards = {stretch.board: (stretch.power_w, stretch.time_s) for stretch in stretches if stretch.power_w is not None}
    if worst.verdict == "counter" or any(stretch.power_w is None for stretch in stretches):
        return judgement
    energy_j = sum(power_w * time_s for power_w, time_s in boards.values())
    tokens = sum(stretch.tokens for stretch in stretches)
    metrics: dict[str, Any] = {
        "energy_j_per_step": energy_j / stretches[0].steps,
        "power_w": sum(power_w for power_w, _ in boards.values()),
    }
    if tokens:
        metrics["tokens_per_j"] = tokens / energy_j
    return metrics | judgement


def _distributed() -> Any:
    """Return torch.distributed, where this process is one of several ranks of it; else None."""
    module = sys.modules.get("torch.distributed")
    return module if module and module.is_available() and module.is_initialized() else None


def _rank() -> int:
    ranks = _distributed()
    return int(ranks.get_rank()) if ranks else 0


def _gathered(stretch: RankStretch) -> list[RankStretch]:
    """Return the stretches of all ranks, in their order."""
    ranks = _distributed()
    if not ranks:
        return [stretch]
    fields_of_all: list[Any] = [None] * ranks.get_world_size()
    ranks.all_gather_object(fields_of_all, asdict(stretch))
    return [RankStretch(**fields) for fields in fields_of_all]


def _of_torch() -> str:
    """Return the UUID of the GPU that torch computes on here; "" for none, and of a torch that does not tell."""
    torch = sys.modules.get("torch")
    if not torch or not torch.cuda.is_available():
        return ""
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    return f"GPU-{uuid}" if uuid else ""
