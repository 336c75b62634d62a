"""What the cluster's instances run on: engines by degree and clock, KV caches, the power of a GPU without instance."""

from kernel_dvfs.serving.columns import mhz
from kernel_dvfs.serving.profile import KERNEL_LEVEL
from kernel_dvfs.serving.steps import StepModel


class Machine:
    """Simulated. gpu, model, overrides: as steps.StepModel. parked_w: of one GPU that holds no instance; None: the
    model's own at its lowest clock."""

    def __init__(self, gpu: str = "h100_sxm", model: str = "llama2-70b", overrides=None, parked_w: float | None = None):
        self._make = lambda tp: StepModel(gpu=gpu, model=model, tp=tp, overrides=overrides)
        self._models = {}
        largest = self.model(8)
        self.gpu_name = largest.spec["name"]
        self.kv_byte_per_token = largest.model.kv_byte_per_token
        self.parked_w = largest.idle_w(largest.clocks[0]) / largest.tp if parked_w is None else parked_w

    def model(self, tp: int) -> StepModel:
        """Steps of an instance of that degree."""
        if tp not in self._models:
            self._models[tp] = self._make(tp)
        return self._models[tp]

    def engine(self, tp: int, clock: str):
        """The engine at a clock as the profile names it: MHz, or kernel:MHz."""
        return self.model(tp).at(mhz(clock), clock.startswith(KERNEL_LEVEL))

    def kv_tokens(self, tp: int) -> int:
        """KV cache of an instance, tokens."""
        return self.model(tp).kv_tokens
