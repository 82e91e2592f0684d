"""Topology: the workers of a dataflow, their hosts, and the channels and chains between them."""
