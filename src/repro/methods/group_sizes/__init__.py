"""How many rollouts a query gets: sGPO's rule, the posterior of a success rate, allocation under a budget."""
