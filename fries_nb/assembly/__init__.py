"""Workers made of a topology's wiring: the same way in both shells."""
