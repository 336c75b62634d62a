"""A results folder as one page: self-contained HTML that can be mailed, printed and read on a phone.

Shows what the pipeline wrote: tables, schedules, records, figures.
"""
