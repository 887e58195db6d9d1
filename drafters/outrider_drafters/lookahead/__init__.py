"""The drafter `lookahead`."""
