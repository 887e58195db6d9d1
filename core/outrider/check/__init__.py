"""The conformance kit: named checks that every drafter must pass."""
