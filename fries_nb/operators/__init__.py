"""Execution of operators: calls of user functions, keyed state, error policies, column types."""
