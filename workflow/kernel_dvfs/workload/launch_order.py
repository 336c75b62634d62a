"""The order of an iteration's launches: rows of one repeat are a layer, run through as often. Knows no clocks."""


def launch_order(rows) -> list:
    """Ids in order of launch. rows: [(id, repeat)] in order; neighbours with the same repeat are one layer."""
    order, layer, repeat = [], [], 0
    for name, times in [*rows, (None, None)]:
        if times != repeat:
            order += layer * repeat
            layer, repeat = [], times
        layer.append(name)
    return order
