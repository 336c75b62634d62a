"""How many different tokens a batch holds; knows nothing of kernels.

The embedding kernels touch one row of the table per different token, so their traffic is an expected value.
"""

import math

from kernel_dvfs.errors import InputError


def expected_distinct_tokens(vocab, tokens, zipf_exponent=None):
    """Expected number of different ids among `tokens` independent draws from `vocab` ids.

    Sum over ids v of 1 - (1 - p_v)^tokens. `zipf_exponent` None: uniform ids, p_v = 1/vocab;
    s >= 0: p_v proportional to rank^-s (natural text has s near 1; s = 0 is uniform). Returns a float.
    Raises InputError on an exponent that is negative or no number.
    """
    if zipf_exponent is None:
        return vocab * _chance_of_occurring(1 / vocab, tokens)
    if (
        isinstance(zipf_exponent, bool)
        or not isinstance(zipf_exponent, (int, float))
        or not (0 <= zipf_exponent < math.inf)
    ):
        raise InputError(f"zipf_exponent must be a finite number of at least 0, not {zipf_exponent!r}")
    weights = [rank**-zipf_exponent for rank in range(1, vocab + 1)]
    total = math.fsum(weights)
    return math.fsum(_chance_of_occurring(weight / total, tokens) for weight in weights)


def _chance_of_occurring(p, tokens):
    # 1 - (1-p)^tokens without cancellation for small p
    return 1.0 if p >= 1 else -math.expm1(tokens * math.log1p(-p))
