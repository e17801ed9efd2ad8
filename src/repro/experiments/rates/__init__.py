"""Which learning rate suits which method, for the same FLOPs?"""
