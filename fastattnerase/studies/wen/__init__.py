"""Wen, Subbalakshmi and Yang (2022): does information follow attention?"""
