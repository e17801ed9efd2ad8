"""Which proxy predicts the norm of the gradient?"""
