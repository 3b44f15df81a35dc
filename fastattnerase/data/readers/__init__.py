"""Readers of labelled text, one a file format or data set, registered by name.

A reader is a function `(path, columns) -> rows`: it streams one mapping a row with the wanted
columns. To add one, write a file beside this one, decorate the function with `register_reader`, and
import the file below.
"""

from fastattnerase.data.readers import (
    ag_news,
    delimited,
    hub,
    imdb_held_out,
    jmars,
    jsonl,
    parquet,
    sentiment_sentences,
    sst,
    yahoo_l6,
    yelp_json,
    zhang,
)
from fastattnerase.data.readers.registry import (
    READERS,
    Reader,
    find_reader,
    register_reader,
    require_columns,
)

__all__ = [
    "READERS",
    "Reader",
    "ag_news",
    "delimited",
    "find_reader",
    "hub",
    "imdb_held_out",
    "jmars",
    "jsonl",
    "parquet",
    "register_reader",
    "require_columns",
    "sentiment_sentences",
    "sst",
    "yahoo_l6",
    "yelp_json",
    "zhang",
]
