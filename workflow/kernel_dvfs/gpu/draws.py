"""Random numbers drawn by name: the same key gives the same number in any order, process or machine.

Every draw of the simulated GPU is keyed by (seed, campaign, target, pair, repeat, ...), so that a record can be
measured again alone, and so that a new campaign has noise of its own. A hash does that; a generator with state would
depend on the order.
"""

import math
from hashlib import blake2b

_HALF = 1 << 53


def uniforms(*key: object) -> tuple[float, float]:
    """Two independent numbers in (0, 1), the same ones for the same key."""
    digest = blake2b("|".join(map(str, key)).encode(), digest_size=16).digest()
    first, second = int.from_bytes(digest[:8], "little") >> 11, int.from_bytes(digest[8:], "little") >> 11
    return (first + 0.5) / _HALF, (second + 0.5) / _HALF


def uniform(*key: object) -> float:
    """A number in (0, 1), the same one for the same key."""
    return uniforms(*key)[0]


def normals(*key: object) -> tuple[float, float]:
    """Two independent standard normal numbers, the same ones for the same key (Box-Muller)."""
    first, second = uniforms(*key)
    radius = math.sqrt(-2 * math.log(first))
    return radius * math.cos(2 * math.pi * second), radius * math.sin(2 * math.pi * second)


def normal(*key: object) -> float:
    """A standard normal number, the same one for the same key."""
    return normals(*key)[0]
