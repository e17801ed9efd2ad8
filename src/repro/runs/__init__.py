"""The one store of runs: what a run depends on (key, golden), where it is (store), how it is made (make), which are
declared (design, panels), and what a page rests on after an edit (resting). Its data lie in runs/, whose README has the
columns of the tables.
"""
