"""What calls of a step do before it is captured, and whether replays of its graph do the same.

A graph holds one call: its learning rate, the batch in one buffer of the host. A step that changes these itself trains
otherwise when it is replayed, at the same speed. So parameters are compared after two calls, after two calls once more,
and after two replays, each from the same state; and what optimisers hold is looked at between calls. Works on torch's
public objects, found by Python's garbage collector; a test gives a torch without a GPU.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

_MOST_HOST_BYTE = 1 << 20
COMPARED = 2  # calls, and replays
# so many numbers of all parameters are compared, evenly spread over each
_MOST_NUMBERS = 1 << 24
# how far apart parameters may be, of how far they moved: after replays and calls, where calls twice are nearer than
# that; and after calls twice, where no replay can be told from a call any more
_APART_SHARE, _SPREAD_SHARE, _TIMES_SPREAD = 0.05, 0.2, 4.0


class Faith(NamedTuple):
    """Whether replays train as calls do."""

    frozen: tuple[str, ...] = ()  # what a replay repeats that a call changes, in words: such a step must not be played
    noticed: tuple[str, ...] = ()  # what else the user should know


NOTHING = Faith()


class Calls:
    """Calls of one step. torch: the module."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._numbers: list[dict[tuple[int, str, int, str], Any]] = []
        self._left: list[Any] = []  # parameters before, after two calls, and after two calls once more
        self._parameters: list[Any] = []
        self._why_not = ""

    def look(self) -> None:
        """Note what the optimisers hold after a call. Numbers in the GPU's memory are the graph's own."""
        numbers = {}
        for optimiser in alive(self._torch.optim.Optimizer):
            for group, values in enumerate(optimiser.param_groups):
                for name, value in values.items():
                    if isinstance(value, self._torch.Tensor) and value.numel() == 1 and not value.is_cuda:
                        value = value.item()
                    if isinstance(value, bool | int | float):
                        numbers[id(optimiser), type(optimiser).__name__, group, name] = value
        self._numbers.append(numbers)

    def twice(self, step: Callable[[], object]) -> None:
        """Call the step COMPARED times, twice, from the state as it is now, which is then put back."""
        torch = self._torch
        self._parameters = [
            parameter
            for parameter in alive(torch.nn.Parameter)
            if parameter.requires_grad and parameter.is_floating_point() and parameter.device.type in ("cuda", "cpu")
        ]
        try:
            copies = Kept(torch)
        except torch.OutOfMemoryError:
            self._why_not = "no memory was left to compare replays with calls"
            return
        self._left = [self.sample()]
        for _ in range(2):
            for _ in range(COMPARED):
                step()
                self.look()
            self._left.append(self.sample())
            copies.restore()

    def sample(self) -> Any:
        """Return numbers of the parameters as they are now, in one tensor; waits."""
        torch, total = self._torch, sum(parameter.numel() for parameter in self._parameters)
        every = max(1, -(-total // _MOST_NUMBERS))
        parts = [parameter.detach().reshape(-1)[::every].double() for parameter in self._parameters]
        numbers = torch.cat(parts) if parts else torch.zeros(0)
        return numbers.cpu()

    def faith(self, replays: Callable[[], Any] | None, copies_from_host: int) -> Faith:
        """Return whether replays train as calls do. replays: runs COMPARED replays from the state that calls began with
        and returns `sample()`, None where there was no call. copies_from_host: how many of the graph's nodes copy from
        the host's memory."""
        frozen, noticed = list(self._changed()), []
        if copies_from_host:
            frozen.append(
                f"{copies_from_host} node(s) copy from the host's memory: each replay reads the same buffer there, "
                "whatever a loader puts elsewhere; copy a new batch into the step's own tensors outside of it"
            )
        if replays and self._left:
            before, called, again = self._left
            moved, spread = _distance(called, before), _distance(called, again)
            apart = _distance(replays(), called) if moved else 0.0
            if not moved:
                noticed.append("no parameter moves when it is called: no optimiser runs in it, so it trains nothing")
            elif apart > max(_APART_SHARE * moved, _TIMES_SPREAD * spread):
                frozen.append(
                    f"{COMPARED} replays leave the parameters {_percent(apart / moved)} of their way from where "
                    f"{COMPARED} calls leave them ({_percent(spread / moved)} from calls to calls): a graph repeats "
                    "one call, and something that the host changes from call to call is missing"
                )
            elif spread > _SPREAD_SHARE * moved:
                noticed.append(
                    f"two calls from the same state leave its parameters {_percent(spread / moved)} of their way "
                    "apart, so replays cannot be compared with calls"
                )
        if self._why_not:
            noticed.append(self._why_not)
        return Faith(tuple(frozen), tuple(noticed))

    def _changed(self) -> Iterable[str]:
        """Yield what an optimiser holds as a number of the host's and changes from call to call."""
        for key in self._numbers[-1] if self._numbers else ():
            values = [numbers[key] for numbers in self._numbers if key in numbers]
            other = next((value for value in values if value != values[0]), None)
            if other is not None:
                _, optimiser, group, name = key
                yield (
                    f"{name} of {optimiser}'s group {group} changes from call to call ({values[0]:g}, then "
                    f"{other:g}), and a graph holds one of them: step the scheduler outside, and make {name} a tensor "
                    "on the GPU"
                )
                return


class Kept:
    """Copies of all tensors that Python knows, to be put back into them. Raises torch.OutOfMemoryError."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        storages: dict[int, Any] = {}
        # by their very class: a compiler's stand-ins for tensors have no memory
        for tensor in (tensor for tensor in alive(torch.Tensor) if type(tensor) in (torch.Tensor, torch.nn.Parameter)):
            if tensor.layout == torch.strided and tensor.device.type in ("cuda", "cpu"):
                storage = tensor.untyped_storage()
                # what a call changes in the host's memory is a count, not a data set
                if 0 < storage.nbytes() <= (_MOST_HOST_BYTE if tensor.device.type == "cpu" else storage.nbytes()):
                    storages.setdefault(storage.data_ptr(), storage)
        self._gradients = [(parameter, parameter.grad) for parameter in alive(torch.nn.Parameter) if parameter.is_leaf]
        self._copies = [(storage, storage.clone()) for storage in storages.values()]

    def restore(self) -> None:
        """Put them back, in the order of the current stream; parameters have the gradients that they had."""
        with self._torch.no_grad():
            for storage, copy in self._copies:
                storage.copy_(copy)
            for parameter, gradient in self._gradients:
                parameter.grad = gradient


def alive(kind: type | tuple[type, ...]) -> list[Any]:
    """Return all objects of a class, or of one of several; by their type, since asking one for its class may run its
    code."""
    return [candidate for candidate in gc.get_objects() if issubclass(type(candidate), kind)]


def _distance(one: Any, other: Any) -> float:
    return float((one - other).norm())


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
