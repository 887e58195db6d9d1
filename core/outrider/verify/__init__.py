"""Which drafted tokens are kept: the rules, the noise they draw with, and the processed scores."""
