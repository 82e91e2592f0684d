"""Constraints: whether measured sequences keep their latency limits, and the reactions if not."""
