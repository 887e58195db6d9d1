"""The drafters `eagle` and `eagle3`."""
