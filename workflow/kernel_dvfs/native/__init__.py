"""The native layer: kernels in C, built by `toolchain` and `build`, loaded by `load`.

Importing this package compiles and loads nothing: everything but the native layer works without it.
"""
