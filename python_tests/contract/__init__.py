"""The contract of the engine: one set of cases and one oracle for every backend."""
