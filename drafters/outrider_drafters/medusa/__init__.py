"""The drafter `medusa`."""
