"""Serrano and Smith, "Is Attention Interpretable?" (ACL 2019): the erasure experiments."""
