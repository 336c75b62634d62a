"""Tables and figures of the pipeline study: ours beside what the Perseus paper and its artifact print.

They read a study's folder (pipeline/study.py) and solve nothing.
"""
