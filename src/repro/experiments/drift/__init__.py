"""Does a profile stay valid while the policy learns?"""
