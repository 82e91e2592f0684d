"""Construction of workers from a topology's wiring, for both shells."""
