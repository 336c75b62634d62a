"""Measuring on a real GPU: a process that keeps it warm, and the clients that ask it for points."""
