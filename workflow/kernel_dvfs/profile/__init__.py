"""The profile: one row per target and setting, pooled over repeats; what every choice is made from."""
