"""WHERE a dataflow runs: which workers there are, on which hosts, and the channels and chains between them."""
