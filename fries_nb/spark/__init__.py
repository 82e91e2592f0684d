"""The shell on Spark: sessions, barrier stages, hosts with their loops and workers, and the driver."""
