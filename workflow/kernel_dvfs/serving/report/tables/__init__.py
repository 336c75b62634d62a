"""One module a table of the serving study: its OUTPUT, and `make(study)`, which reads files only.

`subject(study)` where the numbers are of another subject than the study's: an instance, or another trace.
"""
