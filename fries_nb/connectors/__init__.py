"""Sources and sinks: how rows are read and written by the workers of a host."""
