"""Tuples with named fields for measurement jobs: `collections.namedtuple` costs them 5 ms, a third of their life."""

from _operator import itemgetter


def named(name: str, fields: str, doc: str) -> type:
    """A tuple class with the space-separated `fields`, made from values in order or by name."""
    names = tuple(fields.split())

    def new(cls, *values, **by_name):
        values += tuple(by_name.pop(field) for field in names[len(values) :] if field in by_name)
        if by_name or len(values) != len(names):
            raise TypeError(f"{name} takes {fields}")
        return tuple.__new__(cls, values)

    def show(self):
        return f"{name}({', '.join(f'{field}={value!r}' for field, value in zip(names, self))})"

    members = {field: property(itemgetter(index)) for index, field in enumerate(names)}
    return type(name, (tuple,), members | {"__new__": new, "__repr__": show, "__slots__": (), "__doc__": doc})
