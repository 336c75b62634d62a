"""Which operation of a training step leaves other bits each time?

For each way of attention, a CUDA graph of the step is replayed from the same start four times, and the step is called
twice: how many hashes of all parameters and optimiser state? Then every operation's tensors are hashed in three calls:
one whose inputs are the same in all of them and whose outputs are not is a source. Sets nothing on the GPU.

    python experiments/benchmarks/step_bits.py                   # the mixture of experts, newer.py:moe_bf16
    python experiments/benchmarks/step_bits.py --ways default flash --deterministic
"""

import argparse
import hashlib
import inspect
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "own_steps"))

# the parts of torch's SDPBackend
WAYS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}
REPEATS = 4
RUNS = 3  # of the step with every operation hashed
SMALL = 4  # integers in a tensor that may be left unwritten: seeds and offsets of attention


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", default="moe_bf16", help="a function of own_steps/newer.py (default: moe_bf16)")
    parser.add_argument("--ways", nargs="+", choices=["default", *WAYS], default=["default", *WAYS])
    parser.add_argument("--deterministic", action="store_true", help="ask torch for deterministic algorithms, and warn")
    return parser.parse_args()


class RepeatedStep:
    """A step, all that it trains, and the start that this is put back to."""

    def __init__(self, name):
        import newer
        import torch

        with torch.device(newer.DEVICE):
            self.step = getattr(newer, name)()
        held = inspect.getclosurevars(self.step).nonlocals
        self.model, self.optimiser = held["model"], held["optimiser"]
        self.way = "default"
        self.call(3)
        self.start = [each.clone() for each in self.state()]

    def state(self):
        """Return all parameters and the optimiser's tensors."""
        import torch

        moments = [each for own in self.optimiser.state.values() for each in own.values()]
        return [
            *(each.detach() for each in self.model.parameters()),
            *(each for each in moments if isinstance(each, torch.Tensor)),
        ]

    def put_back(self):
        for each, start in zip(self.state(), self.start):
            each.copy_(start)

    def call(self, count=1):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with nullcontext() if self.way == "default" else sdpa_kernel(getattr(SDPBackend, WAYS[self.way])):
            for _ in range(count):
                self.step()

    def graph(self):
        import torch

        with torch.cuda.stream(torch.cuda.Stream()):
            self.call(3)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.call()
        return graph

    def hash_after(self, run, count):
        """Return a hash of the state that `count` runs leave, from the start."""
        self.put_back()
        for _ in range(count):
            run()
        numbers = [int(checksum(each)) for each in self.state()]
        return hashlib.sha1(str(numbers).encode()).hexdigest()[:10]


def checksum(tensor):
    """Return a number of all bits of a tensor, on its device, whatever the order of the sum."""
    import torch

    flat = tensor.detach().contiguous().view(-1)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    flat = flat.view(integers).to(torch.int64)
    return (flat * (torch.arange(flat.numel(), device=flat.device) * 2654435761 + 1)).sum()


def tensors_of(values):
    """Return the tensors of nested lists and mappings, with what they are: those whose bits count."""
    import torch

    if isinstance(values, torch.Tensor):
        is_counted = values.is_cuda and (values.is_floating_point() or values.numel() > SMALL)
        return [(f"{values.dtype}{list(values.shape)}", values)] if is_counted else []
    if isinstance(values, dict):
        values = list(values.values())
    return [each for value in values for each in tensors_of(value)] if isinstance(values, (list, tuple)) else []


def operations(step):
    """Return (operation, [(what, checksum) before], [(what, checksum) after]) of each operation of a call."""
    from torch.utils._python_dispatch import TorchDispatchMode  # where torch documents it

    class Hashed(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            inputs = tensors_of([args, kwargs or {}])
            before = [(what, checksum(each)) for what, each in inputs]
            result = function(*args, **kwargs or {})
            # what it reads may be what it writes
            after = [(what, checksum(each)) for what, each in [*tensors_of([result]), *inputs]]
            seen.append((str(function), before, after))
            return result

    seen: list[tuple] = []
    step.put_back()
    with Hashed():
        step.call()
    return [(name, *([(what, int(each)) for what, each in side] for side in sides)) for name, *sides in seen]


def sources(step):
    """Print each operation that leaves other bits though it reads the same."""
    runs = [operations(step) for _ in range(RUNS)]
    if len({tuple(name for name, *_ in run) for run in runs}) > 1:
        print(f"  {step.way}: runs call other operations")
        return
    found: Counter[str] = Counter()
    passing_on = 0
    for same in zip(*runs, strict=True):
        name, before, after = same[0]
        if name.startswith(("aten.empty", "aten.new_empty")) or all(each[2] == after for each in same):
            continue
        if any(each[1] != before for each in same):
            passing_on += 1
            continue
        found.update(
            f"{name}, output {i} {what}" for i, (what, _) in enumerate(after) if len({r[2][i] for r in same}) > 1
        )
    print(
        f"  {step.way}: {len(runs[0])} operations, {passing_on} pass on what differs; sources: {dict(found) or 'none'}"
    )


def main():
    options = arguments()
    import torch

    print(f"torch {torch.__version__}, {options.step}, {torch.cuda.get_device_name()}")
    if options.deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
    step = RepeatedStep(options.step)
    for step.way in options.ways:
        graph = step.graph()
        for run, what, repeats, count in (
            (graph.replay, "1 replay", REPEATS, 1),
            (graph.replay, "5 replays", REPEATS, 5),
            (step.call, "5 calls", 2, 5),
        ):
            hashes = [step.hash_after(run, count) for _ in range(repeats)]
            print(f"  {step.way}: {len(set(hashes))} hashes of {repeats} times {what}: {' '.join(hashes)}", flush=True)
        sources(step)


if __name__ == "__main__":
    main()
