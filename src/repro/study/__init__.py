"""From the runs' tables to figures that can be believed: curves, intervals, cost to reach an accuracy."""
