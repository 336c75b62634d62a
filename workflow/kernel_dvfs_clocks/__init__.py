"""A GPU's clocks, which always come back: what a board says of itself, who holds its clocks, the ways to set them, the
broker that sets them for others.

`nvml` reads a board and keeps the lease of who set its clocks; `setters` are the ways to set them; `guard` sets clocks
and gives them back, however its process ends; `broker` does so for named users. Beside them stands what all packages
use: errors, files, shapes of what is read. Nothing here imports another package of this project.
"""
