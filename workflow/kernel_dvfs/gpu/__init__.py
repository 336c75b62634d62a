"""GPUs behind one seam (`seam.Gpu`): a simulated one here, a real one through `nvml`.

Of the simulated GPU: `kernel` turns work into model parameters, `model` gives time, power and temperature, `governor`
the clocks that the power cap allows, `noise` what a measurement adds; `simulated` puts them behind the seam. `spec`
reads the GPUs of `specs/`. Only annotations import anything of kernel_dvfs.measurement.
"""
