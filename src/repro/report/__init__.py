"""Reports: an executed notebook becomes one offline HTML file with its provenance; an index lists them all."""
