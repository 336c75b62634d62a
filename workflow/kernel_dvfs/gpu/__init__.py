"""GPUs: the physics of a simulated one, and a real one through `nvml`, its clocks set by one of `setters`.

Of the simulated GPU: `kernel` turns work into model parameters, `model` gives time, power and temperature, `governor`
the clocks that the power cap allows, `noise` what a measurement adds; `forecast` holds kernels to what real ones took.
`spec` reads the GPUs of `specs/`. A real GPU is taken, and its clocks given back, by `guard`. What both are to the
measurement is said there (measurement.seam).
"""
