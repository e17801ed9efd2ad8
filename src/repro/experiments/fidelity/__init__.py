"""Which proxy knows the norm of the gradient?"""
