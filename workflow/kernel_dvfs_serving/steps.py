"""Time and energy of one engine step of a tensor-parallel instance, from kernel rows on a simulated GPU.

A step's kernels run one after the other, so its time and energy are sums: a part that depends on the number of new
tokens (tabulated), a part linear in the pairs of prompt attention, a part linear in the cached context that decoding
attends over, all-reduces, and the host's own time between steps, in which the GPUs only hold their clocks. All GPUs of
an instance do the same. A step is short against the power controller, yet each is taken to obey the cap by itself: the
clock falls, on the GPU's grid, until the step's mean power is at or below it (as gpu/governor.py).

Every number from here is simulated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

import numpy as np

from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.governor import held_factor
from kernel_dvfs.gpu.kernel import Kernel, LaunchWork, parameters
from kernel_dvfs.gpu.model import clock_w, launch_time_s, run_j, static_w
from kernel_dvfs_clocks.clocks import supported_core_mhz
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving import models
from kernel_dvfs_serving.instance import Engine, Linear
from kernel_dvfs_serving.models import ServedModel, StepKernel, check_degree, served
from kernel_dvfs_serving.system import HOST_S, MAX_TOKENS

# share of a GPU's memory that an engine uses, as vLLM's default
MEMORY_SHARE = 0.9
# what it keeps of that beside weights and cache on each GPU: activations, CUDA graphs, NCCL's buffers (assumed)
ENGINE_GB = 2.5
# the host's time for each sequence of a step (its scheduling, sampling and answer), in which the GPUs wait; fitted to
# what system.HOST_S was
SEQUENCE_S = 45e-6
# families that wait for weights or cache, and the one whose energy per byte theirs is
_STREAMING, _PLAIN_STREAM = ("linear", "grouped_linear", "decode_attention"), "residual"
# a unit that linear work is evaluated at, so that its launch latency vanishes against it
_UNIT = 1e9


def _knots() -> np.ndarray:
    """Return the numbers of new tokens that are tabulated: linear between them is within 0.1 %."""
    dense = [*range(1, 9), *range(10, 33, 2)]
    rising = np.unique(np.round(np.geomspace(32, MAX_TOKENS, 72)).astype(int))
    return np.unique([*dense, *rising])


KNOTS = _knots()


@dataclass(frozen=True, slots=True)
class EngineStep:
    """One step of an instance."""

    time_s: float
    power_w: float  # of the whole instance, mean


class StepModel:
    """Steps of `model` on `tp` GPUs of a simulated spec.

    gpu: name of a spec with an interconnect. overrides: as gpu.spec.resolve. host_s, sequence_s: the host's time per
    step and for each of its sequences.
    Raises InputError for an unknown GPU, model or degree, or a model that does not fit.
    """

    def __init__(
        self,
        gpu: str = "h100_sxm",
        model: str | ServedModel = "llama2-70b",
        tp: int = 8,
        overrides: dict | None = None,
        host_s: float = HOST_S,
        sequence_s: float = SEQUENCE_S,
    ):
        self.spec = gpu_spec.served(gpu, overrides)
        self.gpu, self.model, self.tp, self.host_s = gpu, served(model), check_degree(served(model), tp), host_s
        if "interconnect" not in self.spec or "capacity_gb" not in self.spec["memory"]:
            raise InputError(f"serving: gpu {gpu} has no interconnect or memory.capacity_gb in its spec; give it both")
        for name, seconds in (("host_s", host_s), ("sequence_s", sequence_s)):
            if not (isfinite(seconds) and seconds >= 0):
                raise InputError(f"serving: {name} {seconds}: expected seconds >= 0")
        self.sequence_s = sequence_s
        self.clocks = supported_core_mhz(self.spec["clocks"])
        self.top_mhz = self.clocks[-1]
        self.cap_w = self.tp * self.spec["governor"]["cap_w"]
        self.held_factor = held_factor(self.spec["governor"])
        self.weights_byte = self.model.weights_byte
        memory_byte = MEMORY_SHARE * self.tp * self.spec["memory"]["capacity_gb"] * 1e9
        memory_byte -= self.tp * ENGINE_GB * 1e9
        self.kv_tokens = int((memory_byte - self.weights_byte) / self.model.kv_byte_per_token)
        if self.kv_tokens < 1:
            raise InputError(
                f"serving: {model} ({self.weights_byte / 1e9:.0f} GB) does not fit on {tp} x {gpu} "
                f"({memory_byte / 1e9:.0f} GB usable); use a higher tp"
            )
        self._engines: dict[int, ClockEngine] = {}  # by clock of the grid

    # -- one clock ----------------------------------------------------------------------------------------------------

    def standing_w(self, core_mhz: int) -> float:
        """Return the power of one GPU that holds its clocks and computes nothing, W."""
        memory_mhz = self.spec["clocks"]["auto_mem_mhz"]
        warm_c = self.spec["thermal"]["reference_c"]
        return static_w(self.spec, memory_mhz, warm_c) + clock_w(self.spec["core"], core_mhz)

    def idle_w(self, core_mhz: int) -> float:
        """Return the power of the whole instance without a request, W."""
        return self.tp * self.standing_w(core_mhz)

    def launch(self, kernel: Kernel, core_mhz: int) -> tuple[float, float]:
        """Return (s, J) of one launch on one GPU, standing power included."""
        return self.launches([(kernel, 1)], core_mhz)

    def launches(self, load: Sequence[tuple[Kernel, int]], core_mhz: int) -> tuple[float, float]:
        """Return the same of all launches of a load [(kernel, launches)], one after the other."""
        time_s = sum(count * launch_time_s(kernel, core_mhz / 1000, 1.0) for kernel, count in load)
        work_j = run_j(self.spec, load, core_mhz, self.spec["clocks"]["auto_mem_mhz"])
        return time_s, work_j + self.standing_w(core_mhz) * time_s

    def rows(self, tokens: int) -> list[StepKernel]:
        """Return the kernel rows of a step with so many new tokens, without attention over the cache."""
        return models.token_rows(self.model, self.tp, tokens)

    @cached_property
    def token_kernels(self) -> list[list[tuple[str, Kernel, int]]]:
        """Return, per knot, [(row id, Kernel, launches)], communication and host included."""
        kernels_by_knot = []
        for tokens in KNOTS.tolist():
            kernels = [(row.id, self.kernel(row), row.launches) for row in self.rows(tokens)]
            count, byte = models.all_reduces(self.model, tokens)
            kernels.append(("all_reduce", self.all_reduce(byte), count if self.tp > 1 else 0))
            kernels.append(("host", Kernel(0.0, 0.0, self.host_s, 1, 0.0, 0.0), 1))
            kernels_by_knot.append(kernels)
        return kernels_by_knot

    def kernel(self, row: StepKernel) -> Kernel:
        """Return a row's model parameters. Three things are particular to kernels that stream weights or cache.

        A linear layer of few tokens fills neither tiles nor SMs, which costs time. Decode attention computes whole
        tiles of queries for each head of the cache, and grouped layers of rows for each expert, which costs time and
        energy. And such kernels move fewer bytes per clock than a plain stream because they wait, which is time as
        well: energy per byte is the plain stream's.
        """
        family = self.spec["families"][row.family]
        rest = row.fp32_flop, row.sfu_op, row.read_byte + row.write_byte
        computed = row.tensor_flop
        if row.family == "decode_attention":
            computed *= max(1.0, family.get("tile_rows", 1) * self.model.kv_heads / self.model.heads)
        elif row.family == "grouped_linear":
            computed *= max(1.0, family.get("tile_rows", 1) / row.rows_each)
        kernel = parameters(self.spec, LaunchWork(row.family, computed, *rest))
        if row.launches_none:
            kernel = kernel._replace(latency_s=0.0)
        if row.family not in _STREAMING:
            return kernel
        unfilled = 1 + family.get("half_filled_tokens", 0) / row.rows_each if row.rows_each else 1.0
        slowed = parameters(self.spec, LaunchWork(row.family, max(computed, row.tensor_flop * unfilled), *rest))
        plain = parameters(self.spec, LaunchWork(_PLAIN_STREAM, computed * family.get("tensor_energy", 1.0), *rest))
        return kernel._replace(core_s_ghz=slowed.core_s_ghz, core_j=plain.core_j)

    def all_reduce(self, byte: float) -> Kernel:
        """Return a ring or tree: 2 (n-1)/n of the tensor leaves and enters every GPU. Its time depends on no clock."""
        link = self.spec["interconnect"]
        if self.tp == 1:
            return Kernel(0.0, 0.0, 0.0, 1, 0.0, 0.0)
        moved = 2 * (self.tp - 1) / self.tp * byte
        time_s = link["latency_us"][str(self.tp)] * 1e-6 + moved / (link["gb_per_s"] * 1e9)
        return Kernel(0.0, 0.0, time_s, 1, 0.0, moved * link["byte_pj"] * 1e-12)

    @cached_property
    def linear_kernels(self) -> dict[str, tuple[Kernel, int]]:
        """Return attention's rows at a large unit of work: {"prompt" | "context": (Kernel, launches)}."""
        kinds = {"prompt": models.prompt_attention, "context": models.decode_attention}
        kernels = {}
        for name, row_of in kinds.items():
            row = row_of(self.model, self.tp, _UNIT)
            kernels[name] = self.kernel(row), row.launches
        return kernels

    def table(self, core_mhz: int) -> StepTable:
        """Return what steps at a clock are made of, on all GPUs."""
        loads = ([(kernel, count) for _, kernel, count in kernels] for kernels in self.token_kernels)
        sums = np.array([self.launches(load, core_mhz) for load in loads])
        prompt, context = (self._linear_part(name, core_mhz) for name in ("prompt", "context"))
        tokens = np.arange(MAX_TOKENS + 1)
        return StepTable(
            memoryview(np.interp(tokens, KNOTS, sums[:, 0])),
            memoryview(np.interp(tokens, KNOTS, self.tp * sums[:, 1])),
            (prompt[0], self.tp * prompt[1]),
            (context[0], self.tp * context[1]),
            prompt[2],
            self.tp * prompt[3],
            context[2],
            self.tp * context[3],
            self.sequence_s,
            self.sequence_s * self.idle_w(core_mhz),
        )

    def _linear_part(self, name: str, core_mhz: int) -> tuple[float, float, float, float]:
        """Return (launch s, launch J, s per unit, J per unit) of an attention row on one GPU."""
        kernel, count = self.linear_kernels[name]
        fixed_s = count * kernel.latency_s
        fixed_j = fixed_s * self.standing_w(core_mhz)
        time_s, energy_j = (count * value for value in self.launch(kernel, core_mhz))
        return fixed_s, fixed_j, (time_s - fixed_s) / _UNIT, (energy_j - fixed_j) / _UNIT

    # -- engines ------------------------------------------------------------------------------------------------------

    def check_clock(self, core_mhz: int) -> None:
        """Raise InputError unless the clock is within the GPU's."""
        if not self.clocks[0] <= core_mhz <= self.top_mhz:
            raise InputError(
                f"serving: {self.gpu} has no core clock {core_mhz} MHz; allowed: {self.clocks[0]} to {self.top_mhz} in "
                f"steps of {self.clocks[1] - self.clocks[0]}, and the nearest below is "
                f"{max((mhz for mhz in self.clocks if mhz <= core_mhz), default=self.clocks[0])}"
            )

    def at(self, core_mhz: int) -> ClockEngine:
        """Return the engine at a clock.

        A clock between two of the GPU's grid is taken down to the one below, as the driver does. Raises InputError.
        """
        self.check_clock(core_mhz)
        grid_mhz = self.clocks[bisect_right(self.clocks, core_mhz) - 1]
        if grid_mhz not in self._engines:
            self._engines[grid_mhz] = ClockEngine(self, grid_mhz)
        return self._engines[grid_mhz]

    def prefill(self, tokens: int, core_mhz: int) -> EngineStep:
        """Return a step that reads one whole prompt."""
        time_s, energy_j = self.at(core_mhz).step(tokens, tokens * (tokens + 1) / 2, 0, 1)
        return EngineStep(time_s, energy_j / time_s)

    def decode(self, batch: int, context_tokens: int, core_mhz: int) -> EngineStep:
        """Return a step of `batch` decoding sequences with `context_tokens` cached in all."""
        time_s, energy_j = self.at(core_mhz).step(batch, 0, context_tokens, batch)
        return EngineStep(time_s, energy_j / time_s)


@dataclass(frozen=True, slots=True, eq=False)
class StepTable:
    """What steps at one clock are made of, whole instance, standing power included: dense over the new tokens."""

    time_s: memoryview  # by number of new tokens; hands out plain floats, faster than an array its own scalars
    energy_j: memoryview
    launch_prompt: tuple[float, float]  # s, J of attention over prompts, whatever its work
    launch_context: tuple[float, float]  # s, J of attention over the cache, likewise
    prompt_s: float  # per pair
    prompt_j: float
    context_s: float  # per cached token
    context_j: float
    sequence_s: float  # of the host, per sequence
    sequence_j: float

    def step(
        self, new_tokens: int, prompt_pairs: float, context_tokens: float, sequences: int = 0
    ) -> tuple[float, float]:
        """Return (s, J) of a step, no cap."""
        time_s: float = self.time_s[new_tokens] + sequences * self.sequence_s
        energy_j: float = self.energy_j[new_tokens] + sequences * self.sequence_j
        if prompt_pairs:
            fixed = self.launch_prompt
            time_s += fixed[0] + self.prompt_s * prompt_pairs
            energy_j += fixed[1] + self.prompt_j * prompt_pairs
        if context_tokens:
            fixed = self.launch_context
            time_s += fixed[0] + self.context_s * context_tokens
            energy_j += fixed[1] + self.context_j * context_tokens
        return time_s, energy_j

    def linear(self, batch: int) -> Linear:
        """Return a decode step of `batch` as a line over context."""
        fixed_s, fixed_j = self.launch_context
        time_s = self.time_s[batch] + batch * self.sequence_s + fixed_s
        return Linear(time_s, self.context_s, self.energy_j[batch] + batch * self.sequence_j + fixed_j, self.context_j)


class ClockEngine(Engine):
    """One clock of a StepModel.

    core_mhz: the clock that is asked for; steps above the power cap run below it. idle_w: of the whole instance.
    """

    def __init__(self, model: StepModel, core_mhz: int):
        self.model, self.core_mhz = model, core_mhz
        self.idle_w = model.idle_w(core_mhz)
        self.cap_w, self._held_factor = model.cap_w, model.held_factor
        self._index = model.clocks.index(core_mhz)
        self._hint = self._index
        self._lines: dict[int, Linear] = {}  # of a batch, no cap
        self._tables: dict[int, StepTable] = {}  # of clocks up to this one, by their place, as steps need them
        self._table = model.table(core_mhz)

    def step(
        self, new_tokens: int, prompt_pairs: float, context_tokens: float, sequences: int = 0
    ) -> tuple[float, float]:
        """See Engine.step; at most MAX_TOKENS new tokens."""
        step = self._table.step(new_tokens, prompt_pairs, context_tokens, sequences)
        if step[1] > self.cap_w * step[0]:
            asked = new_tokens, prompt_pairs, context_tokens, sequences
            _, (low_s, low_j), (high_s, high_j), share = self._capped(*asked)
            return low_s + share * (high_s - low_s), self._held_factor * (low_j + share * (high_j - low_j))
        return step

    def least_j(self, floor_w: float, most_tokens: int) -> tuple[float, float, float]:
        """See Engine.least_j. A step at the power cap takes longer than here and draws the cap."""
        table = self._table
        tokens = (
            (min(table.energy_j[count], self.cap_w * table.time_s[count]) - floor_w * table.time_s[count]) / count
            for count in range(1, min(most_tokens, MAX_TOKENS) + 1)
        )
        pair_s, context_s = table.prompt_s, table.context_s
        return (
            min(tokens),
            min(table.prompt_j, self.cap_w * pair_s) - floor_w * pair_s,
            min(table.context_j, self.cap_w * context_s) - floor_w * context_s,
        )

    def _capped(
        self, new_tokens: int, prompt_pairs: float, context_tokens: float, sequences: int
    ) -> tuple[int, tuple[float, float], tuple[float, float], float]:
        """Return the place of the highest clock that keeps the cap, (s, J) of the step there and at the next clock, and
        the share of the work that is done at the next: a board at its cap alternates between the two, its mean power at
        the cap (gpu.governor). Energies as with these clocks locked: a board that is held draws more.

        Power rises with the clock, so look near the last one.
        """
        index, cap_w, last = self._hint, self.cap_w / self._held_factor, self._index
        step = self._table_at(index).step(new_tokens, prompt_pairs, context_tokens, sequences)
        below = step[1] - cap_w * step[0]
        following: tuple[float, float] | None = None
        while index > 0 and below > 0:
            index -= 1
            following = step
            step = self._table_at(index).step(new_tokens, prompt_pairs, context_tokens, sequences)
            below = step[1] - cap_w * step[0]
        while index < last:
            if following is None:
                following = self._table_at(index + 1).step(new_tokens, prompt_pairs, context_tokens, sequences)
            above = following[1] - cap_w * following[0]
            if above > 0:
                break
            index, step, below, following = index + 1, following, above, None
        self._hint = index
        if following is None:  # the highest there is
            return index, step, step, 0.0
        return index, step, following, -below / (above - below) if below <= 0 else 0.0

    def _table_at(self, place: int) -> StepTable:
        """Return the table of the clock at that place of the GPU's."""
        table = self._tables.get(place)
        if table is None:
            table = self._tables[place] = self.model.at(self.model.clocks[place])._table
        return table

    def linear(self, batch: int, context_tokens: float = 0) -> Linear:
        """Return a decode step of `batch` as a line over context, at the clocks that the cap leaves at its tokens."""
        line = self._lines.get(batch)
        if line is None:
            line = self._lines[batch] = self._table.linear(batch)
        energy_j = line.energy_j + line.energy_per_token_j * context_tokens
        if energy_j <= self.cap_w * (line.time_s + line.time_per_token_s * context_tokens):
            return line
        place, _, _, share = self._capped(batch, 0, context_tokens, batch)
        low, high = (self._table_at(index).linear(batch) for index in (place, min(place + 1, self._index)))
        held = Linear(*(a + share * (b - a) for a, b in zip(low, high)))
        return held._replace(
            energy_j=self._held_factor * held.energy_j,
            energy_per_token_j=self._held_factor * held.energy_per_token_j,
        )
