"""What a run measures of itself: aggregated from the reports of its workers, kept over time, put into tables."""
