"""Which drafter with which settings, or none: measured costs and acceptance, predictions, and a run that checks them."""
