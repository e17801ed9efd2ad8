"""Methods on other mixes of queries: where should choosing by advantage and cost save, and does it?"""
