"""Jain and Wallace (2019): attention is not explanation."""
