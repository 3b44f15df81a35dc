"""Measures of how well a ranking explains decisions: plain functions, one file a measure."""
