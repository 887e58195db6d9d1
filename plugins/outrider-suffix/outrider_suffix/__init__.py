"""The drafter `suffix`."""
