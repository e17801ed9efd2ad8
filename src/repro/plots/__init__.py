"""Pictures: one style for every figure, and one colour, marker and dash per arm."""
