"""Does a profile stay true while the policy learns?"""
