"""The shell on Spark: sessions, barrier stages, launch, staging and catalog."""
