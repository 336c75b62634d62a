"""The native layer: kernels in C and CUDA, built by `build`, loaded by `load`, launched by `plans` and `steady`.

Importing this package compiles and loads nothing: everything else works where the native layer cannot be built.
"""
