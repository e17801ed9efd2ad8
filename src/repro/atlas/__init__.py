"""The atlas: a declared set of training runs, made once and kept in git.

design.py reads atlas/design.yaml and lists its runs; run.py makes those that are missing, in shards if one likes;
audit.py makes some of them again and compares. `repro.stats.atlas.load` reads the data.
"""
