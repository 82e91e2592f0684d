"""What an operator is: how its function is called, its keyed state, its error policy, the types that it writes."""
