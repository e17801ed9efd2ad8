"""The base policy: built, pre-trained, saved, loaded, described."""
