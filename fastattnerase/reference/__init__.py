"""The specification in plain torch: float64 on the CPU, one instance at a time."""
