"""The random numbers by which responses are drawn: one for every (response, token), or strata for every query."""

import torch

FRESH = 2.0**-40  # of the probability so far: what is left of one double is too coarse to draw by


def invert(p_B_V: torch.Tensor, uniform_B: torch.Tensor) -> torch.Tensor:
    """token_B_1: the first token at which the cumulative probability exceeds uniform · total (inverse CDF in float64,
    so that a token of probability 0 is never drawn)."""
    cumulative_B_V = p_B_V.cumsum(-1, dtype=torch.float64)
    return torch.searchsorted(cumulative_B_V, uniform_B[:, None] * cumulative_B_V[:, -1:], right=True)


class Independent:
    """Every (response, token) has its own uniform number, so draws do not depend on the order in which rows leave the
    batch."""

    def __init__(self, sizes_Q: list[int], tokens: int, device: torch.device, generator: torch.Generator):
        shape = sum(sizes_Q), tokens
        self.uniform_T_N = torch.rand(shape, dtype=torch.float64, device=device, generator=generator).T.contiguous()

    def token(self, t: int, alive_B: torch.Tensor, p_B_V: torch.Tensor) -> torch.Tensor:
        """token_B at place `t` of the responses `alive_B`; V where probabilities are not finite."""
        return invert(p_B_V, self.uniform_T_N[t, alive_B])[:, 0]


class Stratified(Independent):
    """One uniform number for a whole response, u_k = (k + shift) / K for the K responses to a query: each is drawn by
    inverting the distribution over whole responses, token by token, u ← (u − F(token − 1)) / p(token). So responses are
    spread over the distribution instead of drawn independently: means over them are unbiased and have less variance
    (0.4 to 0.6 of it for an accuracy, docs/LOG.md), but they are not exchangeable, and pass@k needs independent ones.
    Arithmetic sampling is Vilnis et al. (2023). Where a response has become so improbable that nothing of u is left,
    fresh numbers go on."""

    def __init__(self, sizes_Q: list[int], tokens: int, device: torch.device, generator: torch.Generator):
        super().__init__(sizes_Q, tokens, device, generator)
        shift_Q = torch.rand(len(sizes_Q), dtype=torch.float64, device=device, generator=generator).tolist()
        u_N = [(k + shift) / size for size, shift in zip(sizes_Q, shift_Q, strict=True) for k in range(size)]
        self.u_N = torch.tensor(u_N, dtype=torch.float64, device=device)
        self.p_N = torch.ones_like(self.u_N)

    def token(self, t: int, alive_B: torch.Tensor, p_B_V: torch.Tensor) -> torch.Tensor:
        u_B = torch.where(self.p_N[alive_B] > FRESH, self.u_N[alive_B], self.uniform_T_N[t, alive_B])
        token_B_1 = invert(p_B_V, u_B)
        at_B_1 = token_B_1.clamp(max=p_B_V.shape[1] - 1)
        p_B_V = p_B_V.double()
        p_B = p_B_V.gather(1, at_B_1)[:, 0] / p_B_V.sum(-1)
        until_B = p_B_V.cumsum(-1).gather(1, at_B_1)[:, 0] / p_B_V.sum(-1)
        self.u_N[alive_B] = ((u_B - (until_B - p_B)) / p_B).clamp(0, 1 - 2.0**-53)
        self.p_N[alive_B] *= p_B
        return token_B_1[:, 0]
