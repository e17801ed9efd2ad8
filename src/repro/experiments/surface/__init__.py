"""How much do the group of a query that its profile never solved, and the weight of a group, matter to sGPO?"""
