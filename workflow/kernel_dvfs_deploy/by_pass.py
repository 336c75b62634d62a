"""Clocks that follow the marks of a running command: one pair a pass, auto on any surprise."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kernel_dvfs_clocks.clocks import label
from kernel_dvfs_clocks.errors import InputError, lines
from kernel_dvfs_deploy.marks import MarkListener

if TYPE_CHECKING:
    from kernel_dvfs_deploy.control import Control, Pair


class ByPass:
    """with ByPass(control, {pass: pair}) as following: run the command with following.environment.

    step: called with the number of each step that the command tells. Without pairs a mark asks for nothing.
    """

    def __init__(self, control: Control, pairs: Mapping[str, Pair], step: Callable[[int], object]) -> None:
        self._control, self._pairs, self._step = control, pairs, step
        self._marks = MarkListener()
        self.marks = dict.fromkeys(pairs, 0)  # {pass: how often it was marked}
        self.asking_s: list[float] = []  # how long each request took
        self.surprise: str | None = None  # why the clocks went back to auto for good

    @property
    def environment(self) -> dict[str, str]:
        """Return what the command needs in its environment to mark its passes."""
        return self._marks.environment

    def __enter__(self) -> ByPass:
        self._followed = self._marks.followed(self._heard, self._step, from_all=True)
        self._followed.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._followed.__exit__(None, None, None)

    def _heard(self, name: str) -> None:
        try:
            self._obey(name)
        except Exception as error:  # above all a driver's refusal; whatever it is, no clock may stay locked
            self._give_up(f"{name}: {'; '.join(lines(error))}")

    def _obey(self, name: str) -> None:
        if self.surprise or not self._pairs:
            return
        if name not in self._pairs:
            self._give_up(f"the command marked {name!r}, but the schedule has {', '.join(self._pairs)}")
            return
        self.marks[name] += 1
        pair = self._pairs[name]
        if pair != self._control.pair:
            began_s = time.monotonic()
            self._control.ask(pair)
            self.asking_s.append(time.monotonic() - began_s)

    def _give_up(self, why: str) -> None:
        self.surprise = why
        try:
            self._control.to_auto()
        except (InputError, ExceptionGroup) as error:
            # the guard tries again on leaving
            self.surprise += f"; and the clocks could not be given back yet: {'; '.join(lines(error))}"

    def summary(self) -> str:
        """Return one line on what was marked."""
        counts = ", ".join(f"{name} {count} times at {label(self._pairs[name])}" for name, count in self.marks.items())
        return f"passes marked: {counts}"
