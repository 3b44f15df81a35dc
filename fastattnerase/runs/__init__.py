"""Run folders: records, tables written in parts, units and the order in which they run."""
