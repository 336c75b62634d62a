"""GPUs behind one seam: a simulated one on virtual time today; measured tables are read by `profile.table`."""
