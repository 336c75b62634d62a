"""A real NVIDIA GPU through NVML and CUDA: found by UUID, locked, verified, always restored."""
