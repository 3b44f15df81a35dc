"""How soon decisions change, by ranking: a whole study, as small as one can be."""
