"""Tables and figures of the pipeline study: ours, and what the Perseus paper and its artifact print.

They read a study's folder (pipeline/study.py) and solve nothing.
"""
