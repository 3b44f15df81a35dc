"""Does attention explain this decision? Erasure of every prefix of every ranking in one launch."""

__version__ = "0.1.0"
