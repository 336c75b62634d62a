"""Tables of the studies beyond the paper."""
