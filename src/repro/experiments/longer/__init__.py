"""Which methods change where a run ends, which only how fast it gets there?"""
