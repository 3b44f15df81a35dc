"""Erasure of a whole dump, shard by shard, in one process, several, or on many machines."""
