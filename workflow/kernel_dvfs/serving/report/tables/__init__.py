"""One module a table of the serving study."""
