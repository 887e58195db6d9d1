"""The decode loop, where a step's tokens are cut, and what is counted."""
