"""The drafter `draft-model`."""
