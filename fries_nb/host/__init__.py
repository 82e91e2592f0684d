"""A host: one process that runs its share of a region's workers, and connects them with the other hosts."""
