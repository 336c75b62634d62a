"""Numbers and names as tables and figures write them."""


def clock(value):
    """A schedule's clock: whole MHz without a decimal point, or `auto`."""
    return int(value) if isinstance(value, (int, float)) and float(value).is_integer() else value
