"""Faster training paths for a qwen3_5 model without any package beyond PyTorch.

Transformers' reference computes the gated delta rule with batched triangular solves, slices and in-place writes whose
backward passes copy whole tensors. Here the same numbers come from matrix products alone: the inverse of the unit lower
triangular system is built by doubling block sizes, and autograd sees one function with a two-product backward.
`install()` puts the functions into Transformers' module, `remove()` takes them out again.
"""
import torch
import torch.nn.functional as F
from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling


def _level_mask(size, block, device):
    """Where a block of `block` rows meets its left neighbour of the same pair."""
    at = torch.arange(size, device=device) // block
    return ((at[:, None] % 2 == 1) & (at[None, :] == at[:, None] - 1)).float()


class UnitLowerInverse(torch.autograd.Function):
    """(I + L)^-1 for the strictly lower part L of the argument."""

    @staticmethod
    def forward(ctx, system):
        size = system.shape[-1]
        inverse = torch.eye(size, device=system.device) - system * _level_mask(size, 1, system.device)
        block = 2
        while block < size:
            inverse = inverse - inverse @ (system * _level_mask(size, block, system.device)) @ inverse
            block *= 2
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx, gradient):
        inverse, = ctx.saved_tensors
        turned = inverse.transpose(-1, -2)
        return (turned @ gradient @ turned).neg().tril(-1)


def chunk_rule(query, key, value, g, beta, chunk_size=64, initial_state=None, output_final_state=False,
               use_qk_l2norm_in_kernel=False, **_):
    """Same contract as Transformers' torch_chunk_gated_delta_rule, for training: no initial state, no final state."""
    assert initial_state is None and not output_final_state and use_qk_l2norm_in_kernel
    dtype = query.dtype
    batch, length, heads, width = value.shape
    pad = -length % chunk_size

    def chunks(x):
        x = x.transpose(1, 2).float()
        x = F.pad(x, (0, 0, 0, pad)) if pad else x
        return x.reshape(batch * heads, (length + pad) // chunk_size, chunk_size, -1)

    def unit(x):
        return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)

    with torch.autocast(query.device.type, enabled=False):
        query, key, value = unit(chunks(query)) * query.shape[-1] ** -0.5, unit(chunks(key)), chunks(value)
        beta, decay = chunks(beta.unsqueeze(-1)), chunks(g.unsqueeze(-1)).squeeze(-1).cumsum(-1)
        upper = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=query.device).triu(1)
        pairs = (decay.unsqueeze(-1) - decay.unsqueeze(-2)).masked_fill(upper, float("-inf")).exp()
        key_beta, turned = key * beta, key.transpose(-1, -2)
        inverse = UnitLowerInverse.apply((key_beta @ turned) * pairs)
        within = (query @ turned) * pairs
        grown = decay.exp().unsqueeze(-1)
        new = inverse @ (value * beta)
        read = inverse @ (key_beta * grown)
        query = query * grown
        key = key * (decay[..., -1:] - decay).exp().unsqueeze(-1)
        state = torch.zeros(batch * heads, key.shape[-1], width, device=key.device)
        out = []
        for q, k, n, r, w, d in zip(query.unbind(1), key.unbind(1), new.unbind(1), read.unbind(1), within.unbind(1),
                                    grown[:, :, -1:].unbind(1)):
            n = torch.baddbmm(n, r, state, alpha=-1)
            out.append(torch.baddbmm(torch.bmm(q, state), w, n))
            state = torch.baddbmm(state * d, k.transpose(1, 2), n)
        out = torch.stack(out, 1).reshape(batch, heads, length + pad, width)
        return out[:, :, :length].transpose(1, 2).to(dtype).contiguous(), None


def causal_conv(hidden_states, weight, bias=None, activation=None, **_):
    """The depthwise convolution as shifted products: [batch, channels, length] in and out."""
    x = hidden_states.transpose(1, 2)
    reach = weight.shape[-1]
    weight = weight.to(x.dtype)
    padded = F.pad(x, (0, 0, reach - 1, 0))
    out = padded[:, :x.shape[1]] * weight[:, 0]
    for i in range(1, reach):
        out = torch.addcmul(out, padded[:, i:i + x.shape[1]], weight[:, i])
    return F.silu(out).transpose(1, 2)


def _norm(self, x):
    return F.rms_norm(x.float(), (x.shape[-1],), 1.0 + self.weight.float(), self.eps).type_as(x)


def _gated_norm(self, hidden_states, gate):
    out = F.rms_norm(hidden_states.float(), (hidden_states.shape[-1],), self.weight.float(), self.variance_epsilon)
    return (out * F.silu(gate.float())).to(hidden_states.dtype)


_ORIGINAL = (modeling.torch_chunk_gated_delta_rule, modeling.causal_conv1d_fn, modeling.Qwen3_5RMSNorm.forward,
             modeling.Qwen3_5RMSNormGated.forward)


def _put(functions):
    modeling.torch_chunk_gated_delta_rule, modeling.causal_conv1d_fn = functions[:2]
    modeling.Qwen3_5RMSNorm.forward, modeling.Qwen3_5RMSNormGated.forward = functions[2:]


def install():
    _put((chunk_rule, causal_conv, _norm, _gated_norm))


def remove():
    _put(_ORIGINAL)
