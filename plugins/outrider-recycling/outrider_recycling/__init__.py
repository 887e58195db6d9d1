"""The drafter `recycling`."""
