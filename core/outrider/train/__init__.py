"""Training heads and draft models for a target, and the text to train them on."""
