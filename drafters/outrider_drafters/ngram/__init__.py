"""The drafter `ngram`."""
