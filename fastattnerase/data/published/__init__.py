"""Data sets of published work: where they are, how they are cleaned, filtered and split."""
