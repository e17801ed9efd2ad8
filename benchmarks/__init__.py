"""Speed, measured against others and against the machine. The figures written here are those that the README shows."""
