"""Which learning rate suits which method?"""
