"""Files, whole or not at all; and JSON for jobs that start thousands of times.

A file is written beside its place, then renamed. `json` spends 8 ms on importing regular expressions, more than a
measurement takes, so its two C halves are used alone where this Python has them in the known form.
"""

import os


class whole:
    """Yield a temporary path beside `path`; rename it there on success, remove it on any failure."""

    def __init__(self, path):
        self.path = os.fspath(path)
        folder, name = os.path.split(self.path)
        os.makedirs(folder or ".", exist_ok=True)
        # the ending is kept: writers such as savefig read the format from it
        self.temporary = os.path.join(folder, f".{os.getpid()}-{name}")

    def __enter__(self) -> str:
        return self.temporary

    def __exit__(self, kind, error, trace) -> None:
        try:
            if kind is None:
                os.replace(self.temporary, self.path)
        finally:
            if os.path.exists(self.temporary):
                os.unlink(self.temporary)


def write_text(path, text: str) -> None:
    """Write `text` to `path` as UTF-8, whole or not at all."""
    with whole(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def write_json(path, content) -> None:
    """Write `content` as indented JSON, whole or not at all. Raises ValueError on NaN or infinity."""
    import json

    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def compact_json(content) -> str:
    """`content` as one line of JSON. Raises ValueError on NaN or infinity."""
    try:
        from _json import encode_basestring_ascii, make_encoder

        encode = make_encoder(None, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, False)
    except (ImportError, TypeError):
        import json

        return json.dumps(content, allow_nan=False)
    return "".join(encode(content, 0))


def _refuse(value):
    raise TypeError(f"{type(value).__name__} is not JSON")


def read_json(path):
    """The JSON in a file. Raises OSError, or ValueError where it is not one whole JSON value."""
    with open(path, encoding="utf-8") as file:
        return parse_json(file.read())


def parse_json(text: str):
    """The one JSON value in a text. Raises ValueError, also on NaN, infinity, and a name that stands twice."""
    try:
        from _json import make_scanner

        scan = make_scanner(_Scanner)
    except (ImportError, TypeError, AttributeError):
        import json

        return json.loads(text, object_pairs_hook=_object, parse_float=_finite, parse_constant=_refuse_constant)
    try:
        value, end = scan(text, len(text) - len(text.lstrip()))
    except StopIteration as stop:
        raise ValueError(f"no JSON at character {stop.value}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text[end:].strip():
        raise ValueError(f"something follows the JSON at character {end}")
    return value


def _object(pairs: list) -> dict:
    content = dict(pairs)
    if len(content) != len(pairs):
        twice = next(name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place]))
        raise ValueError(f"{twice!r} stands twice")
    return content


def _finite(text: str) -> float:
    value = float(text)
    if value in (_INFINITY, -_INFINITY):
        raise ValueError(f"{text} is too large a number")
    return value


_INFINITY = float("inf")


def _refuse_constant(text: str):
    raise ValueError(f"{text} is no number")


class _Scanner:
    """What json.JSONDecoder shows to its scanner."""

    strict = True
    object_hook = None
    # plain functions of a class: called as they are, with no instance
    object_pairs_hook = staticmethod(_object)
    parse_float = staticmethod(_finite)
    parse_int = int
    parse_constant = staticmethod(_refuse_constant)
