"""Names in the folder of a sweep, and a bound, that commands know without loading what computes."""

SWEEP = "sweep.json"  # what the results depend on; in the folder of every sweep
AGGREGATE = "aggregate"  # the folder of what `aggregate.aggregate_sweep` writes
LARGE = "serrano_smith_large"  # what its run.json says where it is too large for that of `erase`
LEAST_MEMORY = 256 << 20  # bytes with which DuckDB and the aggregating process can work at all
