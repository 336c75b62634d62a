"""One training iteration through the C reference: the rows in order, each fed by name with what others computed.

Tensor-parallel ranks take turns; the collectives between the rows, which are no rows, are done here.
"""

import zlib
from itertools import pairwise

import numpy as np
from oracles import read, stored

from kernel_dvfs.workload.dataflow import bindings
from kernel_dvfs.workload.rows import kernel_rows

# Shape of a whole tensor, F = 4C the hidden layer. The ranks divide the marked axis; "+": what they hold adds up;
# neither: all hold the same.
LAYOUT = {
    name: layout.split()
    for layout, names in {
        "B T*": "ids targets losses_in losses ln1_mean ln1_rstd ln2_mean ln2_rstd lnf_mean lnf_rstd",
        "B T* C": "res1 ln1 ao res2 ln2 mo res3 lnf dlnf dres3_in dres3 dln2 dres2 dln1 dres1",
        "B T* Vp": "logits dlogits",
        "B T C": "ln1_gathered ln2_gathered dres3_gathered dres2_gathered",
        "+ B T C": "ao_partial mo_partial dln2_partial dln1_partial",
        "B T F*": "fch fg dfch dfg",
        "B T 3 NH* HS": "qkv dqkv",
        "B NH* T HS": "q k v y dq dk dv dy",
        "B NH* T T": "pre att datt dpre",
        "B NH* T": "lse",
        "B T NH* HS": "atty datty",
        "3 NH* HS C": "wqkv dwqkv_in dwqkv",
        "3 NH* HS": "bqkv dbqkv_in dbqkv",
        "C NH* HS": "wo dwo_in dwo",
        "F* C": "wfc dwfc_in dwfc",
        "F*": "bfc dbfc_in dbfc",
        "C F*": "wp dwp_in dwp",
        "T* C": "wpe dwpe_in dwpe",
        "Vp C": "wte",
        "+ Vp C": "dwte_in dwte_of_logits dwte",
        "C": "ln1_gamma ln1_beta ln2_gamma ln2_beta lnf_gamma lnf_beta",
        # of the row-parallel layers: every rank's GEMM adds its bias, and their results add up
        "+ C": "bo bp dbo_in dbo dbp_in dbp "
        "dln1_gamma_in dln1_gamma dln2_gamma_in dln2_gamma dlnf_gamma_in dlnf_gamma "
        "dln1_beta_in dln1_beta dln2_beta_in dln2_beta dlnf_beta_in dlnf_beta",
    }.items()
    for name in names.split()
}

# what the next layer calls the tensors that a layer leaves to it
NEXT_LAYER = {"res3": "res1", "lnf": "ln1", "lnf_mean": "ln1_mean", "lnf_rstd": "ln1_rstd"}

# the reduce-scatters make X of X_partial, the all-gathers X_gathered of X
COLLECTIVES = {name: name.removesuffix("_partial") for name in LAYOUT if name.endswith("_partial")} | {
    name.removesuffix("_gathered"): name for name in LAYOUT if name.endswith("_gathered")
}


def given(cpu, model, batch, seed=0):
    """What no row computes: {name: array} of whole tensors for each layer, by the fills of the data flow. The layers
    share the embedding and the tokens, and at their border a layernorm."""
    fills, computed = {}, set()
    for row in kernel_rows(model, batch):
        bound = bindings(row, model)
        for tensor, kind, _, _ in cpu.tensors(row.op, row.settings):
            name = bound[tensor]["name"]
            if kind == "output":
                computed.add(name)
            elif name not in computed:
                fills[name] = bound[tensor]["fill"]
    size = _sizes(model, batch)
    layers = []
    for layer in range(model.layers):
        rngs = {name: np.random.default_rng([seed, layer, zlib.crc32(name.encode())]) for name in fills}
        layers.append({name: _draw(rngs[name], fill, _shape(name, size)) for name, fill in fills.items()})
    for below, above in pairwise(layers):
        above.update({name: below[name] for name in ("wte", "wpe", "ids", "targets")})
        below.update({f"lnf_{part}": above[f"ln1_{part}"] for part in ("gamma", "beta")})
    return layers


def _draw(rng, fill, shape):
    if fill["kind"] == "ids":
        return rng.integers(0, fill["vocabulary"], shape, dtype=np.int32)
    values = rng.normal(fill["mean"], fill["sd"], shape).astype(np.float32)
    if fill["rows"]:
        values[..., fill["rows"] :, :] = 0
    if fill["columns"]:
        values[..., fill["columns"] :] = 0
    return values


def _sizes(model, batch):
    return {
        **{"B": batch, "T": model.sequence, "C": model.channels, "F": 4 * model.channels, "3": 3},
        **{"NH": model.heads, "HS": model.channels // model.heads, "Vp": model.padded_vocab},
    }


def _shape(name, size):
    return [size[axis.rstrip("*")] for axis in LAYOUT[name] if axis != "+"]


def run(cpu, model, batch, layers, degree=1, dtype="float32", **options):
    """An iteration on what is `given`. Returns {name: array} of whole tensors for each layer, float64: everything that
    was given or computed. options: those of kernel_rows."""
    sections = {}
    for row in kernel_rows(model, batch, degree, **options):
        sections.setdefault(row.section, []).append(row)
    gathered_bias = options.get("row_parallel_bias") == "gathered"
    ranks = [Ranks(tensors, _sizes(model, batch), degree, gathered_bias) for tensors in layers]

    def launch(section, layer):
        for row in sections[section]:
            bound = {tensor: binding["name"] for tensor, binding in bindings(row, model, degree).items()}
            outputs = [_launch(cpu, row, bound, tensors, dtype) for tensors in layer.tensors]
            for tensor in outputs[0]:
                layer.put(bound[tensor], [output[tensor] for output in outputs])

    launch("Embedding", ranks[0])
    for number, layer in enumerate(ranks):
        launch("Forward", layer)
        if number + 1 < len(ranks):
            for name, next_name in NEXT_LAYER.items():
                ranks[number + 1].put(next_name, layer.parts(name))
    launch("Loss calculation", ranks[-1])
    for number, layer in reversed(list(enumerate(ranks))):
        launch("Backward", layer)
        if number > 0:
            ranks[number - 1].put("dres3", layer.parts("dres1"))
    ranks[0].put("dwte_of_logits", ranks[-1].parts("dwte_of_logits"))
    launch("Embedding backward", ranks[0])
    return [layer.whole_tensors() for layer in ranks]


def _launch(cpu, row, names, tensors, dtype):
    """The outputs of one row on one rank, whose `tensors` go by name."""
    arrays = {}
    for tensor, kind, type_, shape in cpu.tensors(row.op, row.settings, dtype):
        if kind == "input":
            array = tensors[names[tensor]]
            if type_ == "uint16" and array.dtype == np.float32:  # given, not computed
                array = stored(array, dtype)
            arrays[tensor] = np.ascontiguousarray(array).reshape(shape)
    if row.op == "wte_backward":
        arrays["dwte_out"] = arrays["dwte_in"]  # ids that do not occur keep the gradient they have
    return cpu.run(row.op, row.settings, arrays, dtype)


class Ranks:
    """One layer's tensors, on every rank."""

    def __init__(self, given, size, degree, gathered_bias):
        self.size, self.gathered_bias = size, gathered_bias
        self.tensors = [{} for _ in range(degree)]
        for name, whole in given.items():
            self.put(name, self._divided(name, whole))

    def put(self, name, parts):
        """Every rank's part of a tensor, and what a collective makes of them."""
        for tensors, part in zip(self.tensors, parts):
            tensors[name] = part
        if len(parts) > 1 and name in COLLECTIVES:
            made = COLLECTIVES[name]
            self.put(made, self._divided(made, self._whole(name)))

    def parts(self, name):
        return [tensors[name] for tensors in self.tensors]

    def whole_tensors(self):
        return {name: read(self._whole(name)) for name in self.tensors[0]}

    def _axes(self, name):
        if self.gathered_bias and name in ("dbo_in", "dbo", "dbp_in", "dbp"):
            return ["C"]  # every rank sums over all tokens
        return LAYOUT[name]

    def _divided(self, name, whole):
        axes, degree = self._axes(name), len(self.tensors)
        if axes[0] == "+":
            return [whole] + [np.zeros_like(whole)] * (degree - 1)
        for axis, letters in enumerate(axes):
            if letters.endswith("*"):
                return np.split(whole, degree, axis)
        return [whole] * degree

    def _whole(self, name):
        parts = self.parts(name)
        if name.endswith("_partials"):
            return self._joined(name.removesuffix("_partials"), [part.sum(axis=0) for part in parts])
        return self._joined(name, parts)

    def _joined(self, name, parts):
        axes, shape = self._axes(name), _shape(name, self.size)
        if axes[0] == "+":
            return sum(parts).reshape(shape)
        for axis, letters in enumerate(axes):
            if letters.endswith("*"):
                shape[axis] //= len(parts)
                return np.concatenate([part.reshape(shape) for part in parts], axis)
        for part in parts:
            np.testing.assert_array_equal(part, parts[0])
        return parts[0].reshape(shape)
