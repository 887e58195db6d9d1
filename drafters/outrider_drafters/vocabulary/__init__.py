"""Drafts across tokenizers."""
