"""Stand-ins for the CUDA extension cannot drift from it: what they are called with must fit the binding's signatures,
read from native/bindings/cuda.cpp. tests/native holds that reading to the built extension.
"""

import functools
import inspect
import re
from pathlib import Path

BINDING = Path(__file__).resolve().parents[2] / "native/bindings/cuda.cpp"
_PART = re.compile(r'py::kw_only\(\)|py::arg\("(\w+)"\)((?:\.none\(\w+\))?\s*=)?')


@functools.cache
def signatures() -> dict:
    """{"Plan.run": inspect.Signature}; of constructors "Plan.__init__"; inherited methods included; no `self`."""
    text = BINDING.read_text(encoding="utf-8")
    text = text[text.index("PYBIND11_MODULE") :]
    classes = list(re.finditer(r"py::class_<([^;]*?)>\(\s*m, \"(\w+)\"", text))
    found, own = {}, {}
    for number, each in enumerate(classes):
        name = each[2]
        end = classes[number + 1].start() if number + 1 < len(classes) else len(text)
        own[name] = {}
        for call in re.finditer(r"\.def(?:_property_readonly)?\(|^  m\.def\(", text[each.start() : end], re.M):
            if call[0].strip().startswith("m."):
                continue
            arguments = _balanced(text, each.start() + call.end())
            method = re.match(r'\s*"(\w+)"', arguments)
            own[name][method[1] if method else "__init__"] = _signature(arguments)
        bases = [base.strip() for base in each[1].split(",")[1:]]
        for base in (base for base in bases if base in own):
            own[name] = own[base] | own[name]
        found |= {f"{name}.{method}": signature for method, signature in own[name].items()}
    return found


def _balanced(text: str, start: int) -> str:
    """From `start` to the bracket that closes there."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return text[start:place]
    raise AssertionError("brackets of the binding do not match")


def _signature(arguments: str) -> inspect.Signature:
    kind, parameters = inspect.Parameter.POSITIONAL_OR_KEYWORD, []
    for part in _PART.finditer(arguments):
        if part[1] is None:
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        default = ... if part[2] else inspect.Parameter.empty
        parameters.append(inspect.Parameter(part[1], kind, default=default))
    return inspect.Signature(parameters)


def stands_for(name: str):
    """A class decorator: each public method is one of the extension's class `name` and is called as that one can be.

    Constructors are held where they are called from a stand-in of the module: see `held`.
    """

    def hold(stub):
        for method, function in list(vars(stub).items()):
            if callable(function) and not method.startswith("_"):
                setattr(stub, method, held(f"{name}.{method}", function, skip=1))
        return stub

    return hold


def held(name: str, function, skip: int = 0):
    """`function`, refusing what the extension's `name` ("Plan.__init__", "Plan.run") would not take. skip: leading
    arguments of `function` alone, such as self."""
    signature = signatures()[name]

    @functools.wraps(function)
    def checked(*positional, **named):
        signature.bind(*positional[skip:], **named)
        return function(*positional, **named)

    return checked
