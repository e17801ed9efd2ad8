"""Advantage variance: D³S's lemma and propositions, and its cross-group step."""
