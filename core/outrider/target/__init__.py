"""The target as a black box: prefill, forward, commit, and the masks and caches behind them."""
