"""Subset selection: which components to leave out."""
