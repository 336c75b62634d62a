"""What does not fit is refused before anything is computed, in one line that says what, where and what is expected."""

import numpy as np
import pytest
from oracles import bf16, draw

from kernel_dvfs_clocks.errors import InputError

LAYERNORM = {"M": 4, "C": 6, "eps": 1e-5}
PRODUCT = {"count": 1, "M": 4, "N": 5, "K": 6, "layout": "TN", "has_bias": False, "accumulate": False}
ATTENTION = {"B": 2, "T": 3, "NH": 1, "HS": 4, "scale": 0.5}
SOFTMAX = {"N": 1, "T": 2, "scale": 1.0}
CLASSIFIER = {"M": 3, "V": 5, "Vp": 8, "dloss": 0.5}


def refusal(cpu, call, *arguments):
    with pytest.raises(cpu.ShapeError) as refused:
        call(*arguments)
    message = str(refused.value)
    assert "\n" not in refused.value.args[0]
    return message


def misaligned(array):
    raw = np.zeros(array.nbytes + 1, np.uint8)
    view = raw[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def test_refusals_are_input_errors_of_the_package(cpu):
    assert issubclass(cpu.ShapeError, cpu.Error)
    assert issubclass(cpu.Error, InputError)


def test_an_unknown_operation_is_told_all_that_there_are(cpu):
    for call in (lambda: cpu.tensors("relu", {}), lambda: cpu.run("relu", {}, {})):
        message = refusal(cpu, call)
        assert message.startswith("operation is 'relu', expected embedding_forward, ")
        assert all(op in message for op in cpu.OPERATIONS)


@pytest.mark.parametrize(
    ("op", "settings", "message"),
    [
        ("layernorm_forward", {**LAYERNORM, "N": 3}, "setting 'N' is unknown, expected M, C, eps"),
        ("layernorm_forward", {**LAYERNORM, 3: 3}, "setting 3 is unknown, expected M, C, eps"),
        ("layernorm_forward", {"M": 4, "C": 6}, "setting 'eps' is missing, expected M, C, eps"),
        *[
            ("layernorm_forward", {**LAYERNORM, "M": M}, f"M is {M!r}, expected an int >= 1")
            for M in (0, -1, 4.0, True, None, "4", 2**63, [4])
        ],
        ("layernorm_forward", {**LAYERNORM, "M": np.arange(2)}, "M is array([0, 1]), expected an int >= 1"),
        (
            "layernorm_forward",
            {**LAYERNORM, "M": np.eye(2)},
            "M is array([[1., 0.], [0., 1.]]), expected an int",
        ),
        ("layernorm_forward", {**LAYERNORM, "M": "ü"}, "M is '\\xfc', expected an int"),
        ("layernorm_forward", {**LAYERNORM, "M": "long" * 99}, "M is 'longlong"),
        *[
            ("layernorm_forward", {**LAYERNORM, "eps": eps}, f"eps is {eps!r}, expected a number")
            for eps in ("1e-5", True, None)
        ],
        ("layernorm_forward", {**LAYERNORM, "eps": 10**400}, "eps is 1000"),
        *[
            ("layernorm_forward", {**LAYERNORM, "eps": eps}, "eps is ")
            for eps in (0.0, -1e-5, float("nan"), float("inf"), 1e-300)
        ],
        ("residual_layernorm", {**LAYERNORM, "eps": 0}, "eps is 0.000000, expected > 0 and finite"),
        ("softmax_forward", {**SOFTMAX, "scale": -1}, "scale is -1.000000, expected > 0 and finite"),
        ("embedding_forward", {"M": 7, "T": 3, "C": 2, "V": 5}, "M is 7, expected a multiple of T = 3"),
        ("wpe_backward", {"M": 2, "T": 3, "C": 2, "seed": 0}, "M is 2, expected a multiple of T = 3"),
        *[
            ("wpe_backward", {"M": 2, "T": 1, "C": 2, "seed": seed}, f"seed is {seed!r}, expected an int from 0 to")
            for seed in (-1, 2**32, 1.5, True)
        ],
        ("attention_forward", {**ATTENTION, "HS": 257}, "HS is 257, expected at most 256"),
        ("attention_backward", {**ATTENTION, "scale": 0}, "scale is 0.000000, expected > 0 and finite"),
        ("softmax_forward", {**SOFTMAX, "N": 2048, "T": 1024}, "B*NH*T*T is 2048*1024*1024, expected below 2^31"),
        ("softmax_forward", {**SOFTMAX, "T": 2**62}, "B*NH*T*T is 1*4611686018427387904*"),
        *[
            ("softmax_backward", {**SOFTMAX, "skip_upper": flag}, f"skip_upper is {flag!r}, expected a bool, 0 or 1")
            for flag in (2, -1, None, "no", 0.0)
        ],
        ("classifier", {**CLASSIFIER, "Vp": 4}, "Vp is 4, expected at least V = 5"),
        ("classifier", {**CLASSIFIER, "dloss": 0}, "dloss is 0.000000, expected > 0"),
        ("bias_backward", {"M": 4, "OC": 2, "G": 5}, "G is 5, expected at most M = 4"),
        *[
            ("gemm", {**PRODUCT, "layout": layout}, f"layout is {layout!r}, expected 'TN', 'NN' or 'NT'")
            for layout in ("TT", "tn", 0, None)
        ],
        ("gelu_forward", {"M": 2**30, "C": 2**31}, "inp is (1073741824, 2147483648), expected at most 2^60 elements"),
    ],
)
def test_settings_that_make_no_sense(cpu, op, settings, message):
    for call in (lambda: cpu.tensors(op, settings), lambda: cpu.run(op, settings, {})):
        assert refusal(cpu, call).startswith(f"{op}: {message}")


def test_settings_of_numpy_are_as_good_as_those_of_python(cpu):
    plain = cpu.tensors("gemm", PRODUCT)
    settings = {**PRODUCT, "M": np.int32(4), "N": np.int64(5), "has_bias": 0, "accumulate": 0}
    assert cpu.tensors("gemm", settings) == plain
    settings = {"M": 4, "C": 6, "eps": np.float32(1e-5)}
    assert cpu.tensors("layernorm_forward", settings) == cpu.tensors("layernorm_forward", LAYERNORM)


def test_tensors_are_listed_with_their_types_and_shapes(cpu):
    want = [
        ("logits", "input", "uint16", (3, 8)),
        ("targets", "input", "int32", (3,)),
        ("losses_in", "input", "float32", (3,)),
        ("dlogits", "output", "uint16", (3, 8)),
        ("losses_out", "output", "float32", (3,)),
    ]
    assert cpu.tensors("classifier", CLASSIFIER) == want
    want[0], want[3] = ("logits", "input", "float32", (3, 8)), ("dlogits", "output", "float32", (3, 8))
    assert cpu.tensors("classifier", CLASSIFIER, "float32") == want


def test_an_unknown_element_type_is_refused(cpu):
    for call in (lambda: cpu.tensors("gemm", PRODUCT, "fp16"), lambda: cpu.run("gemm", PRODUCT, {}, dtype="fp16")):
        assert refusal(cpu, call) == "gemm: dtype is 'fp16', expected 'bf16' or 'float32'"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("inp", lambda a: a[0], "inp is float32 (6), expected float32 (4, 6)"),
        ("inp", lambda a: a[:0], "inp is float32 (0, 6), expected float32 (4, 6)"),
        ("inp", lambda a: a.astype(np.float64), "inp is float64 (4, 6), expected float32 (4, 6)"),
        ("inp", lambda a: a.astype(">f4"), "inp is >f4 (4, 6), expected float32 (4, 6)"),
        ("inp", np.asfortranarray, "inp is float32 (4, 6) but strided or unaligned, expected a C-contiguous"),
        ("inp", lambda a: np.repeat(a, 2, axis=0)[::2], "inp is float32 (4, 6) but strided or unaligned"),
        ("inp", misaligned, "inp is float32 (4, 6) but strided or unaligned"),
        ("gamma", lambda a: a[:5], "gamma is float32 (5), expected float32 (6)"),
        ("gamma", lambda a: a[None, :], "gamma is float32 (1, 6), expected float32 (6)"),
        ("beta", bf16, "beta is uint16 (6), expected float32 (6)"),
        ("beta", list, "beta is [np.float32("),
        ("beta", lambda a: None, "beta is None, expected float32 (6)"),
        ("mean", lambda a: a.astype(np.float64), "mean is float64 (4), expected float32 (4)"),
        ("out", lambda a: a[:2], "out is float32 (2, 6), expected float32 (4, 6)"),
    ],
)
def test_arrays_that_would_be_misread(cpu, name, change, message):
    tensors = draw(cpu, "layernorm_forward", LAYERNORM, "float32")
    tensors[name] = change(tensors[name])
    got = refusal(cpu, cpu.run, "layernorm_forward", LAYERNORM, tensors, "float32")
    assert got.startswith(f"layernorm_forward: {message}")


def test_floats_are_no_bf16(cpu):
    tensors = draw(cpu, "gelu_forward", {"M": 2, "C": 3}, "float32")
    message = refusal(cpu, cpu.run, "gelu_forward", {"M": 2, "C": 3}, tensors, "bf16")
    assert message == "gelu_forward: inp is float32 (2, 3), expected uint16 (2, 3) of bf16 bits"


def test_every_tensor_of_every_operation_is_held_to_its_type_and_shape(cpu):
    sizes = dict.fromkeys(("B", "T", "NH", "HS", "M", "N", "K", "C", "V", "Vp", "OC", "count"), 4)
    more = {"G": 2, "eps": 1e-5, "scale": 1.0, "dloss": 1.0, "seed": 0, "skip_upper": 0, "layout": "TN"}
    every = {**sizes, **more, "has_bias": 1, "accumulate": 1}
    for op in cpu.OPERATIONS:
        names = refusal(cpu, cpu.tensors, op, {"": 0}).split("expected ")[1].split(", ")
        settings = {name: every[name] for name in names}
        tensors = draw(cpu, op, settings, "bf16")
        cpu.run(op, settings, tensors)
        for name, kind, _, _ in cpu.tensors(op, settings):
            array = tensors[name]
            for bad in (array.astype(np.float64), np.concatenate([array] * 2), array[None]):
                message = refusal(cpu, cpu.run, op, settings, {**tensors, name: bad})
                assert message.startswith(f"{op}: {name} is {bad.dtype} (")
            without = {other: array for other, array in tensors.items() if other != name}
            if kind == "output":
                cpu.run(op, settings, without)
            else:
                message = refusal(cpu, cpu.run, op, settings, without)
                assert message.startswith(f"{op}: tensor '{name}' is missing, expected ")


def test_tensors_that_the_settings_do_not_ask_for(cpu):
    tensors = draw(cpu, "gemm", {**PRODUCT, "has_bias": True, "accumulate": True}, "bf16")
    message = refusal(cpu, cpu.run, "gemm", {**PRODUCT, "accumulate": True}, tensors)
    assert message == "gemm: tensor 'bias' is unknown, expected a, b, c, d"
    message = refusal(cpu, cpu.run, "gemm", {**PRODUCT, "has_bias": True}, tensors)
    assert message == "gemm: tensor 'c' is unknown, expected a, b, bias, d"


@pytest.mark.parametrize(
    ("op", "name", "settings"),
    [
        ("embedding_forward", "ids", {"M": 6, "T": 3, "C": 2, "V": 5}),
        ("wte_backward", "ids", {"M": 6, "V": 5, "C": 2, "seed": 0}),
        ("classifier", "targets", {"M": 6, "V": 5, "Vp": 8, "dloss": 1.0}),
    ],
)
def test_ids_beyond_the_vocabulary(cpu, op, name, settings):
    tensors = draw(cpu, op, settings, "bf16")
    for bad in (5, 7, -1, 2**31 - 1, -(2**31)):
        tensors[name][4] = bad
        assert refusal(cpu, cpu.run, op, settings, tensors) == f"{op}: {name}[4] is {bad}, expected 0 to 4"
    for good in (0, 4):
        tensors[name][4] = good
        cpu.run(op, settings, tensors)


def test_only_dicts_are_taken(cpu):
    with pytest.raises(TypeError):
        cpu.run("gemm", PRODUCT, [])
    with pytest.raises(TypeError):
        cpu.tensors("gemm", [("M", 4)])
