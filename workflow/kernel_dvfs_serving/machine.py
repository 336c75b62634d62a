"""The machine that instances of a replay run on: engines by degree and clock, KV caches, power of a GPU without one.

What a profile was made from decides: a simulated one runs on simulated GPUs, a measured one on what it says itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Protocol

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving import measured
from kernel_dvfs_serving.instance import Engine, Slower
from kernel_dvfs_serving.models import MODELS
from kernel_dvfs_serving.profile import ServingProfile
from kernel_dvfs_serving.steps import StepModel
from kernel_dvfs_serving.system import HOST_S, check_step


class Machine(Protocol):
    """What a cluster asks of the hardware below it."""

    kv_byte_per_token: float  # bytes of keys and values that a token leaves in the cache
    parked_w: float  # of one GPU that holds no instance

    def engine(self, tp: int, clock: str) -> Engine:
        """Return the engine at a clock as the profile names it, in MHz; of a simulated one also under a power cap of
        each GPU, as 1980@400, in W."""

    def kv_tokens(self, tp: int) -> int:
        """Return the KV cache of an instance, tokens."""

    def caps_w(self, shares: Sequence[float]) -> list[float]:
        """Return power caps of a GPU, W, at these shares of its own; none where it cannot be told what they do."""


class SimulatedMachine:
    """Instances on simulated GPUs.

    gpu, model, overrides, host_s: as steps.StepModel. parked_w: None: the GPU's own at its lowest clock.
    """

    def __init__(
        self,
        gpu: str = "h100_sxm",
        model: str = "llama2-70b",
        overrides: dict | None = None,
        parked_w: float | None = None,
        host_s: float = HOST_S,
    ):
        self._options: dict[str, Any] = {"gpu": gpu, "model": model, "overrides": overrides, "host_s": host_s}
        self._models: dict[int, StepModel] = {}
        self._engines: dict[tuple[int, str], Engine] = {}
        largest = self.model(8)
        self.kv_byte_per_token = float(largest.model.kv_byte_per_token)
        self.parked_w = largest.idle_w(largest.clocks[0]) / largest.tp if parked_w is None else parked_w

    def model(self, tp: int) -> StepModel:
        """Return the steps of an instance of that degree."""
        if tp not in self._models:
            self._models[tp] = StepModel(tp=tp, **self._options)
        return self._models[tp]

    def __reduce__(self) -> tuple:
        """Return what it is made of, not its tables: that goes to another process."""
        return partial(SimulatedMachine, parked_w=self.parked_w, **self._options), ()

    def engine(self, tp: int, clock: str) -> Engine:
        """See Machine."""
        engine = self._engines.get((tp, clock))
        if engine is None:
            mhz, _, cap_w = clock.partition("@")
            model = self._capped(tp, float(cap_w)) if cap_w else self.model(tp)
            engine = self._engines[tp, clock] = model.at(int(mhz))
        return engine

    def _capped(self, tp: int, cap_w: float) -> StepModel:
        """Return what `model` does, each GPU under a lower power cap."""
        overrides = self._options["overrides"] or {}
        governor = overrides.get("governor", {}) | {"cap_w": cap_w}
        return StepModel(tp=tp, **self._options | {"overrides": overrides | {"governor": governor}})

    def kv_tokens(self, tp: int) -> int:
        """See Machine."""
        return self.model(tp).kv_tokens

    def caps_w(self, shares: Sequence[float]) -> list[float]:
        """See Machine."""
        return [round(share * self.model(8).spec["governor"]["cap_w"]) for share in shares]


class SlowerMachine:
    """A machine whose steps take `factor` times as long, at the same energy."""

    def __init__(self, machine: Machine, factor: float):
        self._machine, self._factor = machine, factor
        self.kv_byte_per_token, self.parked_w = machine.kv_byte_per_token, machine.parked_w
        self._engines: dict[tuple[int, str], Engine] = {}

    def engine(self, tp: int, clock: str) -> Engine:
        """See Machine."""
        if (tp, clock) not in self._engines:
            self._engines[tp, clock] = Slower(self._machine.engine(tp, clock), self._factor)
        return self._engines[tp, clock]

    def kv_tokens(self, tp: int) -> int:
        """See Machine."""
        return self._machine.kv_tokens(tp)

    def caps_w(self, shares: Sequence[float]) -> list[float]:
        """See Machine."""
        return self._machine.caps_w(shares)


class MeasuredMachine:
    """Instances as a measured profile shows them.

    KV caches and the bytes of a token are the profile's optional columns, else those of the model and GPU that it
    names, if both are known here. A GPU without an instance draws what the least drawing clock draws at no load.
    limits: max_batch, chunk_tokens. Raises InputError where neither says it.
    """

    def __init__(self, profile: ServingProfile, **limits: int):
        self._profile, self._limits = profile, limits
        self.engine = cache(lambda tp, clock: measured.engine(profile, tp, clock, self.kv_tokens(tp), **limits))
        known = MODELS.get(profile.model)
        byte = profile.kv_byte_per_token or (known.kv_byte_per_token if known else None)
        if byte is None:
            raise InputError(
                f"{profile.name}: model {profile.model} is unknown here (known: {', '.join(MODELS)}); give the profile "
                "a column kv_byte_per_token: bytes that a token takes in the KV cache"
            )
        self.kv_byte_per_token = float(byte)
        settings = sorted({(tp, clock) for _, tp, clock in profile.curves})
        self.fits = {(tp, clock): self.engine(tp, clock).fit for tp, clock in settings}
        self.parked_w = profile.parked_w

    def __reduce__(self) -> tuple:
        """Return what SimulatedMachine's does."""
        return partial(MeasuredMachine, self._profile, **self._limits), ()

    def note(self) -> str:
        """Return how well the fitted engines give back the profile, in a line."""
        power, tbt, ttft = (
            100 * max(getattr(fit, name) for fit in self.fits.values()) for name in ("power", "tbt", "ttft")
        )
        return (
            f"{self._profile.name}: engines fitted to it give back its power within {power:.1f} %, times between "
            f"tokens within {tbt:.1f} %, first tokens within {ttft:.1f} % (median, worst of its clocks)"
        )

    def kv_tokens(self, tp: int) -> int:
        """See Machine."""
        given = self._profile.kv_tokens.get(tp)
        return given if given is not None else self._simulated_kv_tokens(tp)

    def caps_w(self, shares: Sequence[float]) -> list[float]:
        """See Machine."""
        return []

    @cache  # noqa: B019 - a machine lives as long as the study
    def _simulated_kv_tokens(self, tp: int) -> int:
        try:
            return StepModel(self._profile.gpu, self._profile.model, tp).kv_tokens
        except InputError as error:
            raise InputError(
                f"{self._profile.name}: {error}; or give the profile a column kv_tokens: the KV cache of an instance, "
                "tokens"
            ) from None


def machine(profile: ServingProfile, gpu: str, model: str, host_s: float = HOST_S, **limits: int) -> Machine:
    """Return the machine that a profile belongs to. gpu, model, host_s: what is simulated. Raises InputError where a
    simulated profile is of another GPU or model, or was made with another engine than it says, or for a step that
    cannot be."""
    if not profile.simulated:
        _refuse_one_gpus_watts(profile)
        return MeasuredMachine(profile, **limits)
    if (profile.gpu, profile.model) != (gpu, model):
        raise InputError(
            f"{profile.name}: simulated for {profile.model} on {profile.gpu}, but {model} on {gpu} is to be replayed; "
            "name the same GPU and model, or make another profile"
        )
    asked = {"host_s": host_s} | limits
    for name, value in profile.engine.items():
        if asked.get(name, value) != value:
            raise InputError(
                f"{profile.name}: simulated with {name} = {value:g}, but {asked[name]:g} is to be replayed; give the "
                "same, or make another profile"
            )
    check_step(**limits)
    return SimulatedMachine(gpu, model, host_s=host_s)


def _refuse_one_gpus_watts(profile: ServingProfile) -> None:
    """Raise InputError where the GPUs of an instance draw less than half of what such a GPU draws idle, as it is known
    here: the watts are of one of them."""
    degree = max(profile.degrees)
    try:
        known = StepModel(profile.gpu, profile.model, degree)
    except InputError:
        return  # a GPU, a model or a degree that is not known here
    least_w = known.idle_w(known.clocks[0]) / degree
    if profile.parked_w < least_w / 2:
        raise InputError(
            f"{profile.name}: {profile.parked_w:.3g} W a GPU without load, where {profile.gpu} draws about "
            f"{least_w:.3g} W; are power_w the watts of one GPU? they are those of an instance: {degree} times as many"
        )
