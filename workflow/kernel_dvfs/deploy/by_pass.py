"""Clocks that follow the marks of a running command: one pair a pass, auto on any surprise."""

from __future__ import annotations

import threading
import time

from kernel_dvfs.deploy.control import named
from kernel_dvfs.deploy.marks import Marks
from kernel_dvfs.errors import InputError, lines


class ByPass:
    """with ByPass(control, {pass: pair}) as following: run the command with following.environment.

    marks: {pass: how often it was marked}. surprise: why the clocks went back to auto for good, or None.
    """

    def __init__(self, control, pairs: dict):
        self._control, self._pairs = control, pairs
        self._marks = Marks()
        self._thread = threading.Thread(target=self._follow, name="kernel-dvfs marks", daemon=True)
        self.marks = dict.fromkeys(pairs, 0)
        self.asking_s = []  # how long each request took
        self.surprise = None

    @property
    def environment(self) -> dict:
        return self._marks.environment

    def __enter__(self) -> ByPass:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._marks.stop()
        self._thread.join()
        self._marks.close()

    def _follow(self) -> None:
        while True:
            name, answer = self._marks.receive()
            if name is None:
                return
            try:
                self._obey(name)
            except Exception as error:  # a driver's refusal, above all; whatever it is, no clock may stay locked
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
        told = ", ".join(f"{name} {count} times at {named(self._pairs[name])}" for name, count in self.marks.items())
        return f"passes marked: {told}"
