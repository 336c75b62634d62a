"""Read a GPU's spec file: every figure with its source, checked, and stripped to plain numbers for the model.

A file may name another, `base: h200_sxm`: it then has all figures of that one, with their sources and notes, and
replaces those that it says itself.

Used when a study is set up, never in a measurement job (those read the resolved JSON).
"""

import re
from copy import deepcopy
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from kernel_dvfs.gpu.kernel import BACKWARD
from kernel_dvfs_clocks.errors import InputError, meant
from kernel_dvfs_clocks.files import parse_shipped_yaml

SOURCES = ("measured", "published", "inferred", "assumed")
_FOLDER = files("kernel_dvfs.gpu") / "specs"
_FAMILIES = "families"
_RANGE, _SERVING, _SAVINGS = "tensor_energy_range_pj", "serving", "savings"
NOT_JUDGED = "not judged by measurements"  # whole, or in what a spec says of its savings

# no figure of a board lies outside of these, in the unit that its name has
_CELSIUS = {"type": "number", "minimum": -50, "maximum": 200}
_POSITIVE = {"type": "number", "minimum": 1e-6, "maximum": 1e6}
_NOT_NEGATIVE = {"type": "number", "minimum": 0, "maximum": 1e6}
_SHARE = {"type": "number", "minimum": 0, "maximum": 0.3}  # of a scatter
_JITTER = {"type": "number", "minimum": 0, "maximum": 0.1}  # so that no period is drawn below nothing
_MHZ = {"type": "integer", "minimum": 1, "maximum": 20000}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 100000}


def _group(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def _by_number(value: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "patternProperties": {r"^\d+$": value},
        "additionalProperties": False,
        "minProperties": 1,
    }


_FAMILY = _group(
    {
        "tensor_efficiency": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "dram_efficiency": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "sm_byte_per_clock": _POSITIVE,
        "overlap": {"type": "number", "minimum": 1, "maximum": 16},
        "latency_us": _NOT_NEGATIVE,
    },
    # energy of a tensor FLOP and of a DRAM byte relative to the GPU's own; instructions other than FP32 and SFU ones
    # memory_exponent: memory work takes longer by this power of the core clock
    {
        "tensor_energy": _POSITIVE,
        "dram_energy": _POSITIVE,
        "instruction_per_byte": _NOT_NEGATIVE,
        "memory_exponent": {"type": "number", "minimum": 0, "maximum": 0.3},
        "precision": {"type": "string"},  # of the operands of its products: bf16, or one of the GPU's `precisions`
    },
)
# what inference serving's kernels of a family have of their own
_SERVED = _group(
    {},
    _FAMILY["properties"]
    | {
        "half_filled_tokens": _NOT_NEGATIVE,  # at which a linear layer fills half of its tiles
        # rows of queries that decode attention computes for each head of the cache, whether or not there are as many
        "tile_rows": {"type": "integer", "minimum": 1},
    },
)
_SHORT = _group({"time_sd": _SHARE, "power_sd": _SHARE, "falls": {"type": "number", "minimum": 0, "maximum": 4}})
_LATENCY = _group({"median_s": _POSITIVE, "p99_s": _POSITIVE})

SCHEMA = _group(
    {
        "id": {"type": "string", "pattern": "^[a-z0-9-]+$"},
        "name": {"type": "string"},
        "sm_count": _COUNT,
        "threads_per_sm": _COUNT,
        "clocks": _group(
            {
                "core_mhz": _group({"lowest": _MHZ, "highest": _MHZ, "step": _MHZ}),
                "mem_mhz": {"type": "array", "items": _MHZ, "minItems": 1, "uniqueItems": True},
                "auto_core_mhz": _MHZ,  # of a cool board
                "auto_mem_mhz": _MHZ,
            },
            {
                "effective_core_mhz": _by_number(_MHZ),
                "top": _group(dict.fromkeys(("above_auto_mhz", "mhz_per_w", "above_w"), _NOT_NEGATIVE)),
                "fold": _group({"mem_mhz": _MHZ, "above_core_mhz": _MHZ, "becomes_mhz": _MHZ}),
            },
        ),
        "rates": _group(
            {
                "tensor_bf16_tflop_per_s_per_ghz": _POSITIVE,
                "fp32_tflop_per_s_per_ghz": _POSITIVE,
                "sfu_top_per_s_per_ghz": _POSITIVE,
            },
            # rows and columns of the result that an SM computes at a time: a dense product takes whole waves of them.
            # None: its family's efficiency holds for products of any size
            {
                "gemm_tile": {"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2},
                # what a tile's start and end take, and what adding up takes where several SMs share k: elements of k
                # that a tile computes in as long. None: nothing, and k is never shared
                **dict.fromkeys(("gemm_start_k", "gemm_split_k"), _POSITIVE),
            },
        ),
        "memory": _group(
            {
                "reference_mhz": _MHZ,
                "gb_per_s": _POSITIVE,
                "eta": _by_number(_POSITIVE),
                "static_w": _by_number(_POSITIVE),
                "dram_energy_scale": _by_number(_POSITIVE),
            },
            # what decides how often dense matrix products read their operands: the L2 that their tiles share, or a
            # multiple of "each once" in all. Neither: once, where their energy was measured with what they read again
            {"capacity_gb": _POSITIVE, "l2_mb": _POSITIVE, "gemm_traffic": {"type": "number", "minimum": 1}},
        ),
        "core": _group(
            {
                "clock_w_per_ghz": _NOT_NEGATIVE,
                "v_over_v0": {
                    "type": "array",
                    "minItems": 2,
                    "items": {"type": "array", "items": _POSITIVE, "minItems": 2, "maxItems": 2},
                },
            },
            {"tensor_clock_share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1}},
        ),
        "energy_pj": _group(
            dict.fromkeys(
                ("tensor_bf16_flop", "fp32_flop", "sfu_op", "dram_byte", "stream_byte", "sm_cycle"),
                _NOT_NEGATIVE,
            ),
            {"instruction": _NOT_NEGATIVE},
        ),
        _RANGE: {"type": "array", "items": _POSITIVE, "minItems": 2, "maxItems": 2},
        "governor": _group(
            {
                "cap_w": _POSITIVE,
                "dither_mhz": _NOT_NEGATIVE,
                "auto_light_load_core_mhz": {"type": ["integer", "null"], "minimum": 1},
                "auto_light_load_below_us": _NOT_NEGATIVE,
                "auto_extra_power": _NOT_NEGATIVE,
            },
            # hunting_mhz: how far from the clock that keeps the cap a board alternates at it; capped_extra_power: what
            # a board that the cap holds draws beyond the same clocks locked. 0 where they are not known
            {"hunting_mhz": _NOT_NEGATIVE, "capped_extra_power": _NOT_NEGATIVE},
        ),
        "thermal": _group(
            {
                "ambient_c": _CELSIUS,
                "c_per_w": {"type": "number", "minimum": 0, "maximum": 10},
                "tau_s": _POSITIVE,
                "leakage_per_c": {"type": "number", "minimum": 0, "maximum": 0.1},
                "reference_c": _CELSIUS,
            }
        ),
        "sensor": _group({"counter_period_s": _POSITIVE, "period_jitter": _JITTER, "read_s": _NOT_NEGATIVE}),
        "noise": _group(
            {
                "window": {
                    "type": "array",
                    "minItems": 1,
                    "items": _group(
                        {
                            "below_s": {"type": ["number", "null"], "exclusiveMinimum": 0},
                            "time_sd": _SHARE,
                            "energy_sd": _SHARE,
                        }
                    ),
                },
                # of a session at a pair: where the governor chooses the core clock, and where a lock does
                "offset_sd": _group({"governed": _SHARE, "locked": _SHARE}),
                # what a window of half a second scatters beyond one of 5 s, falling with this power of its length
                "short": _group({"free": _SHORT, "capped": _SHORT}),
                # of the whole iteration's time in passes under the power cap: of one clock for all of its kernels
                "capped_pass_sd": _SHARE,
            }
        ),
        "switching": _group({"core": _LATENCY, "mem": _LATENCY}),
        "families": {"type": "object", "additionalProperties": _FAMILY, "minProperties": 1},
    },
    {
        # of products in other precisions than bf16, relative to it: FLOP per second, energy of a FLOP; bytes an operand
        "precisions": {
            "type": "object",
            "additionalProperties": _group(dict.fromkeys(("rate", "energy", "byte"), _POSITIVE)),
        },
        # in words, which measurements judge what the simulated GPU saves; silent where none do
        _SAVINGS: {"type": "string"},
        # what several GPUs that serve one model need besides
        "interconnect": _group(
            {"gb_per_s": _POSITIVE, "latency_us": _by_number(_NOT_NEGATIVE), "byte_pj": _NOT_NEGATIVE}
        ),
        # figures of families as inference serving's kernels have them; of no interest to other studies
        "serving": {"type": "object", "additionalProperties": _SERVED, "minProperties": 1},
    },
)


def names() -> list[str]:
    """Return the simulated GPUs that can be configured by name."""
    entries = (entry.name for entry in _FOLDER.iterdir())
    return sorted(name[:-5] for name in entries if name.endswith(".yaml") and name != f"{_FAMILIES}.yaml")


def of_board(board: str) -> str | None:
    """Return the simulated GPU of the type of a real one, by the name that its driver gives: "NVIDIA H100 80GB HBM3".
    One that names no form is taken for an SXM board. None where there is none."""
    words = set(re.findall(r"[a-z0-9]+", board.lower()))
    form = "pcie" if "pcie" in words else "sxm"
    for name in names():
        spec_words = set(_read(name)["name"].lower().split())
        if spec_words - {"pcie", "sxm"} <= words and not spec_words & {"pcie", "sxm"} - {form}:
            return name
    return None


def _strip(node: Any, where: str) -> Any:
    """Return plain values of a tree whose figures are {value, source, note}. Raises InputError on a figure without
    source."""
    if not isinstance(node, dict):
        if isinstance(node, str):  # id and name speak for themselves
            return node
        raise InputError(f"{where}: a bare figure; write {{value: ..., source: {' | '.join(SOURCES)}}}")
    if "value" not in node:
        return {str(key): _strip(child, f"{where}.{key}") for key, child in node.items()}
    if node.get("source") not in SOURCES or set(node) - {"value", "source", "note"}:
        raise InputError(f"{where}: needs 'source' (one of {', '.join(SOURCES)}), may have 'note', nothing else")
    return _keys_as_text(node["value"])


def _keys_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _keys_as_text(child) for key, child in value.items()}
    return value


@cache
def _read(name: str, heirs: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the tree of a spec's file, over that of its base. heirs: the specs that rest on this one, the first one
    first."""
    try:
        tree = parse_shipped_yaml((_FOLDER / f"{name}.yaml").read_text("utf-8"))
    except yaml.YAMLError as error:
        raise InputError(f"GPU spec {name}.yaml: {error}") from None
    base = tree.pop("base", None)
    if base is None:
        return tree
    if base not in names():
        raise InputError(f"GPU spec {name}.yaml: base '{base}': no such spec{_meant(base)}; {_allowed()}")
    road = (*heirs, name)
    if base in road:
        raise InputError(
            f"GPU spec {road[0]}.yaml: {' -> '.join((*road, base))}: base leads in a circle; leave one out"
        )
    # what was measured on one board judges no other
    return merge({key: value for key, value in _read(base, road).items() if key != _SAVINGS}, tree)


def _meant(name: str) -> str:
    """Return the spec that a word is nearly, if any. Never one of another type: an rtx_4090 is no rtx_a4000."""
    known, types = names(), _types(name)
    return meant(name, [other for other in known if _types(other) == types] if types else known)


def _types(name: str) -> set[str]:
    """Return what a name says of the GPU's type: {"a100"} of a100_pcie, {"x3080"} of rtx_3080_ti, {} of rtx."""
    return set(re.findall(r"[a-z]?[0-9]+", re.sub(r"[^a-z0-9]", "", name.lower())))


def _allowed() -> str:
    return f"allowed: {', '.join(names())}"


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return a tree with the values of `base`, replaced by those that `over` has at the same place; a figure with its
    source, {value, source, note}, is replaced as a whole."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict) and "value" not in value
        merged[key] = merge(base[key], value) if both else value
    return merged


def resolve(name: str, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the plain spec of a simulated GPU, families merged in, all keys text, fit for JSON; laid out as SCHEMA
    says.

    overrides: a tree of plain values that replace the spec's own, e.g. {"energy_pj": {"tensor_bf16_flop": 1.0}}; as in
    a spec, families.default holds for every family that has no figure of its own there.
    Raises InputError for an unknown name, a malformed spec or an override the schema refuses.
    """
    if name not in names():
        raise InputError(
            f"gpu '{name}': no such simulated GPU{_meant(name)}; {_allowed()}; nvml for a GPU of this machine; "
            "{kind: table, path: mine.csv} for measurements"
        )
    return _checked(name, _merged(name, overrides)) if overrides else deepcopy(_shipped(name))


@cache
def _shipped(name: str) -> dict[str, Any]:
    """Return a spec as it is in its file; checking it takes longer than most that is done with it."""
    return _checked(name, _merged(name, {}))


def _merged(name: str, overrides: dict[str, Any]) -> dict[str, Any]:
    spec = merge(_strip(_read(name), name), _keys_as_text(overrides))
    families = _strip(_read(_FAMILIES), _FAMILIES)
    default = families.pop("default")
    given = spec.get("families", {})
    if not isinstance(given, dict) or not all(isinstance(figures, dict) for figures in given.values()):
        if isinstance(given, dict) and isinstance(given.get("default"), dict):  # no family of its own
            return spec | {"families": {name: figures for name, figures in given.items() if name != "default"}}
        return spec  # the schema tells what is wrong
    # a GPU's own figures, also those for all families, before the shared ones
    shared = {family: default | values | given.get("default", {}) for family, values in families.items()}
    # a backward family is a GPU's own alone: one that says nothing of it has the forward one's figures (gpu.kernel)
    shared |= {
        family: shared[forward] | given.get(forward, {})
        for family in given
        if (forward := family.removesuffix(BACKWARD)) != family and family not in shared and forward in shared
    }
    unknown = {family: figures for family, figures in given.items() if family not in shared and family != "default"}
    return spec | {"families": unknown | {family: values | given.get(family, {}) for family, values in shared.items()}}


def _checked(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec, if it is one, without what is of no use to the model."""
    from kernel_dvfs.strict_schema import StrictValidator  # jsonschema, slow to import

    for error in StrictValidator(SCHEMA).iter_errors(spec):
        where = ".".join(map(str, error.absolute_path)) or "top level"
        raise InputError(f"GPU spec {name}: {where}: {error.message}")
    _check_clocks(name, spec)
    known = ["bf16", *spec.get("precisions", {})]
    for family, figures in spec["families"].items():
        if (precision := figures.get("precision", "bf16")) not in known:
            raise InputError(
                f"GPU spec {name}: families.{family}.precision: no {precision} here; allowed: {', '.join(known)}"
            )
    # of use to one study, not to the model: no reason to measure again
    return {key: value for key, value in spec.items() if key not in (_RANGE, _SERVING, _SAVINGS)}


def served(name: str, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a spec as resolve does, with its families as inference serving's kernels have them, which may have
    half_filled_tokens and tile_rows besides. overrides: also of `serving`, by family. Raises InputError, as resolve."""
    spec = resolve(name, overrides)
    serving = _merged(name, overrides or {}).get(_SERVING, {})
    families = merge(spec["families"], serving)
    for family, figures in families.items():
        missing = set(_FAMILY["required"]) - set(figures)
        if missing:
            raise InputError(f"GPU spec {name}: serving.{family}: {', '.join(sorted(missing))} missing")
    return spec | {"families": families}


def tensor_energy_range_pj(name: str) -> list[float]:
    """Return [least, most] that the energy of a tensor-core FLOP at V0 may be on a board of the type, by its spec."""
    energy_range_pj: list[float] = _strip(_read(name)[_RANGE], name)
    return energy_range_pj


def savings_of(board: str) -> str:
    """Return by what the savings of a simulated GPU are judged, in words. board: its name, "H200 SXM"."""
    specs = map(_read, names())
    return next((spec.get(_SAVINGS) for spec in specs if spec["name"] == board), None) or NOT_JUDGED


def _check_clocks(name: str, spec: dict[str, Any]) -> None:
    """What a schema cannot say: clocks ascend, each memory clock has its figures, the table of noise ends open, the
    counter moves more slowly than it is read."""
    sensor = spec["sensor"]
    if sensor["read_s"] >= sensor["counter_period_s"]:
        raise InputError(f"GPU spec {name}: sensor.read_s is {sensor['read_s']}, must be below counter_period_s")
    grid = spec["clocks"]["core_mhz"]
    if grid["lowest"] > grid["highest"]:
        raise InputError(f"GPU spec {name}: clocks.core_mhz: lowest is {grid['lowest']}, highest {grid['highest']} MHz")
    limits = [row["below_s"] for row in spec["noise"]["window"]]
    if limits[-1] is not None or None in limits[:-1] or limits[:-1] != sorted(limits[:-1]):
        raise InputError(f"GPU spec {name}: noise.window: below_s must ascend and be null in the last row")
    for table in ("eta", "static_w", "dram_energy_scale"):
        known = [*spec["clocks"]["mem_mhz"], spec["clocks"]["auto_mem_mhz"]]
        missing = set(map(str, known)) - set(spec["memory"][table])
        if missing:
            raise InputError(f"GPU spec {name}: memory.{table} lacks memory clock {', '.join(sorted(missing))} MHz")
    points = [mhz for mhz, _ in spec["core"]["v_over_v0"]]
    if points != sorted(set(points)):
        raise InputError(f"GPU spec {name}: core.v_over_v0: clocks must ascend")
