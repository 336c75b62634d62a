"""JSON Schema as this project means it: a whole number is written as one.

By the standard 2.0 is an integer. Here it would be accepted, and then stand in a file's name or in `range` as what it
is: a float.
"""

from jsonschema import Draft202012Validator
from jsonschema.validators import extend

StrictValidator = extend(
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int),
)
