"""Experiments: one file each, from a configuration through `run` to a result on disk."""
