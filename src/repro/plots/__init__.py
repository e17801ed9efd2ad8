"""Figures: one common style, and one colour, marker and dash pattern per arm."""
