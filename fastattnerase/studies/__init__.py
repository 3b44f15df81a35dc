"""Studies: a folder each, from its options through its units to its report."""
