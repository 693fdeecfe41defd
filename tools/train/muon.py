"""Muon: momentum whose update is replaced by its nearest orthogonal matrix (Newton-Schulz), for weight matrices.

Matrices of one shape are orthogonalised together in one batched product. The update's size is matched to AdamW's, so one
learning rate serves both.
"""
import torch


@torch.no_grad()
def orthogonalize(stack, dtype):
    """Five quintic Newton-Schulz steps on a batch of matrices."""
    x = stack.to(dtype)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr, momentum=0.95, weight_decay=0.1, dtype=torch.bfloat16):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.dtype = dtype  # of the products; CPUs without any of bf16 are quicker with float32

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(tuple(p.shape), []).append(p)
            for shape, members in shapes.items():
                for p in members:
                    if "momentum" not in self.state[p]:
                        self.state[p]["momentum"] = torch.zeros_like(p)
                moments = [self.state[p]["momentum"] for p in members]
                gradients = [p.grad for p in members]
                torch._foreach_lerp_(moments, gradients, 1 - group["momentum"])
                looked = torch._foreach_lerp(gradients, moments, group["momentum"])
                updates = orthogonalize(torch.stack(looked), self.dtype).float().unbind(0)
                torch._foreach_mul_(members, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(members, updates, alpha=-group["lr"] * 0.2 * max(shape) ** 0.5)
