"""The second opinion of the GPU benchmark, in PyTorch, agrees with the C reference at small shapes: it can be trusted
at full size, where the C reference takes too long. Needs PyTorch, no GPU."""

import numpy as np
import pytest
from oracles import draw
from test_reference_operations import CASES

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def reference():
    from experiments.benchmarks import torch_reference

    return torch_reference


def as_torch(array):
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def finite(array):
    """Of what is drawn, what must not be read is NaN: PyTorch reads all of it."""
    if array.dtype == np.uint16:
        return np.where((array & 0x7FFF) > 0x7F80, np.uint16(0), array)
    return np.nan_to_num(array) if array.dtype == np.float32 else array


@pytest.mark.parametrize("op", CASES)
def test_both_references_agree_and_a_wrong_element_is_found(cpu, reference, op):
    settings = CASES[op][-1]
    kinds = {name: kind for name, kind, _, _ in cpu.tensors(op, settings)}
    inputs = {n: finite(a) for n, a in draw(cpu, op, settings, "bf16").items() if kinds[n] == "input"}
    outputs = cpu.run(op, settings, inputs)
    tensors = {name: as_torch(array) for name, array in (inputs | outputs).items()}
    found = reference.excess(op, settings, tensors)
    assert found.keys() == outputs.keys()
    assert all(share <= 1 for share, _ in found.values()), found
    name = next(iter(outputs))
    flat = tensors[name].flatten()
    place = int(flat.abs().float().argmax())
    flat[place] = flat[place] * 1.25
    assert not reference.excess(op, settings, tensors)[name][0] <= 1
