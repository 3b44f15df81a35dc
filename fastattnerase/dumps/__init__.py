"""Attention layers written to disk: folders of safetensors shards with a manifest."""
