"""Clocks that follow the marks of a running command: one pair a pass, auto on any surprise."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernel_dvfs.deploy.marks import Marks
from kernel_dvfs.errors import InputError, lines
from kernel_dvfs.gpu.clocks import label

if TYPE_CHECKING:
    from kernel_dvfs.deploy.control import Control, Pair


class ByPass:
    """with ByPass(control, {pass: pair}) as following: run the command with following.environment."""

    def __init__(self, control: Control, pairs: Mapping[str, Pair]) -> None:
        self._control, self._pairs = control, pairs
        self._marks = Marks()
        self._thread = threading.Thread(target=self._follow, name="kernel-dvfs marks", daemon=True)
        self.marks = dict.fromkeys(pairs, 0)  # {pass: how often it was marked}
        self.asking_s: list[float] = []  # how long each request took
        self.surprise: str | None = None  # why the clocks went back to auto for good

    @property
    def environment(self) -> dict[str, str]:
        """What the command needs in its environment to mark its passes."""
        return self._marks.environment

    def __enter__(self) -> ByPass:
        # signals are the main thread's: one that it has blocked must not end the process here
        held = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        return self

    def __exit__(self, *_: object) -> None:
        self._marks.stop()
        self._thread.join()
        self._marks.close()

    def _follow(self) -> None:
        while True:
            received = self._marks.receive()
            if received is None:
                return
            name, _, answer = received
            try:
                self._obey(name)
            except Exception as error:  # above all a driver's refusal; whatever it is, no clock may stay locked
                self._give_up(f"{name}: {'; '.join(lines(error))}")
            answer()

    def _obey(self, name: str) -> None:
        if self.surprise:
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
            # the guard tries again, and its janitor after it
            self.surprise += f"; and the clocks could not be given back yet: {'; '.join(lines(error))}"

    def summary(self) -> str:
        """One line on what was marked."""
        told = ", ".join(f"{name} {count} times at {label(self._pairs[name])}" for name, count in self.marks.items())
        return f"passes marked: {told}"
