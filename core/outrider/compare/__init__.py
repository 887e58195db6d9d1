"""Side-by-side runs: prompts, interleaved measurement, pooled counts."""
