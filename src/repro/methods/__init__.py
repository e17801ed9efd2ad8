"""The methods of the papers, on plain arrays: what is rolled out, what is trained on, with what weight and through
which loss."""
