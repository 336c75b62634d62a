"""Random numbers drawn by name: the same key gives the same number in any order, process or machine.

Every draw of the simulated GPU is keyed by (seed, campaign, target, pair, repeat, ...), so that a record can be
measured again alone and a fresh campaign is really fresh. A hash instead of a generator with state, and not
`random` or `hashlib`, because importing those costs a measurement job more than its own work.
"""

import math

_MASK = (1 << 64) - 1


def _hash64(key: str) -> int:
    """64 bits of `key`: FNV-1a, finished by the splitmix64 mixer (Steele, Lea, Flood 2014)."""
    value = 0xCBF29CE484222325
    for byte in key.encode():
        value = ((value ^ byte) * 0x100000001B3) & _MASK
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(*key) -> float:
    """A number in (0, 1), the same one for the same key."""
    return ((_hash64("|".join(map(str, key))) >> 11) + 0.5) / (1 << 53)


def normal(*key) -> float:
    """A standard normal number, the same one for the same key (Box-Muller)."""
    return math.sqrt(-2 * math.log(uniform(*key, "r"))) * math.cos(2 * math.pi * uniform(*key, "phi"))


def weighted(weights: dict, *key):
    """One of the keys of `weights` {value: probability}; probabilities need not add up to 1."""
    left = uniform(*key) * sum(weights.values())
    for value, weight in weights.items():
        left -= weight
        if left < 0:
            return value
    return value
