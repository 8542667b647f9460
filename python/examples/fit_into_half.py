"""Training of a GPT in half of the memory that a step takes, beside the same training without.

python python/examples/fit_into_half.py
"""

import copy

import torch
from torch import nn

import pipewright as pw
from gpt import Gpt, loss_fn


class Loss(nn.Module):
    """A network and its loss, so that the plan holds both."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The loss of a batch."""
        return loss_fn(self.network(x), y)


def train(step: nn.Module, module: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    """The loss of each step."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    losses = []
    for x, y in batches:
        loss = step(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def main() -> None:
    """Plans, measures, trains."""
    torch.manual_seed(0)
    module = Loss(Gpt(vocabulary=256, length=64, width=128, layers=4))
    text = torch.randint(0, 256, (5, 8, 65))
    batches = [(part[:, :-1].contiguous(), part[:, 1:].contiguous()) for part in text]
    plain = copy.deepcopy(module)

    half = pw.recompute(module, batches[0], budget=0.5, seconds=1)
    print(half.report, "\n")
    print(half.measure(*batches[0]), "\n")
    losses = train(half, module, batches)
    print("losses", *(f"{loss:.4f}" for loss in losses))
    same = losses == train(plain, plain, batches)
    print("the losses of training without recomputation", "are the same" if same else "differ")


if __name__ == "__main__":
    main()
