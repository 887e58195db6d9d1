"""The built-in drafters; each comes in through its entry point, by the same door as any other package's."""
