"""The peer of a U-Net: the same network in eager PyTorch, channels last, written as its users write it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import unnorm as un


def _conv(ours: un.networks.Conv) -> nn.Conv2d:
    high, _, inputs, outputs = ours.kernel.shape
    made = nn.Conv2d(inputs, outputs, high, padding=high // 2)
    _take(made.weight, jnp.transpose(ours.kernel, (3, 2, 0, 1)))
    _take(made.bias, ours.bias)
    return made


def _linear(ours: Any) -> nn.Linear:
    made = nn.Linear(ours.in_features, ours.out_features)
    _take(made.weight, ours.weight)
    _take(made.bias, ours.bias)
    return made


def _norm(ours: un.networks.GroupNorm) -> nn.GroupNorm:
    return nn.GroupNorm(ours.groups, len(ours.gain), eps=ours.floor)


def _take(parameter: Any, array: Any) -> None:
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.array(array)))


class Block(nn.Module):
    """The twin of `networks.ResBlock`."""

    def __init__(self, ours: un.networks.ResBlock):
        super().__init__()
        self.norms = nn.ModuleList(_norm(norm) for norm in ours.norms)
        self.convs = nn.ModuleList(_conv(conv) for conv in ours.convs)
        self.told = _linear(ours.told)
        self.past = nn.Identity() if ours.past is None else _conv(ours.past)
        self.size = ours.size

    def _resized(self, x: torch.Tensor) -> torch.Tensor:
        if self.size == "half":
            return functional.avg_pool2d(x, 2)
        return functional.interpolate(x, scale_factor=2, mode="nearest") if self.size == "double" else x

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        h = self.convs[0](self._resized(functional.silu(self.norms[0](x))))
        h = h + self.told(functional.silu(told))[:, :, None, None]
        h = self.convs[1](functional.silu(self.norms[1](h)))
        return (self.past(self._resized(x)) + h) * 2**-0.5


class UNet(nn.Module):
    """The twin of `networks.UNet` without attention and condition, on pictures that need no padding."""

    def __init__(self, ours: un.networks.UNet):
        super().__init__()
        self.register_buffer("frequencies", torch.from_numpy(np.array(ours.embedding.frequencies)))
        self.embed = nn.Sequential(_linear(ours.embedding.first), nn.SiLU(), _linear(ours.embedding.second))
        self.enter, self.leave = _conv(ours.enter), _conv(ours.leave)
        self.down = nn.ModuleList(nn.ModuleList(Block(b) for b in stage.blocks) for stage in ours.down)
        self.shrink = nn.ModuleList(Block(b) for b in ours.shrink)
        self.middle = nn.ModuleList(Block(b) for b in ours.middle.blocks)
        self.grow = nn.ModuleList(Block(b) for b in ours.grow)
        self.up = nn.ModuleList(nn.ModuleList(Block(b) for b in stage.blocks) for stage in ours.up)
        self.norm = _norm(ours.norm)

    def forward(self, x: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        angles = level[:, None] * self.frequencies
        told = self.embed(torch.cat([angles.sin(), angles.cos()], 1))
        h, seen = self.enter(x), []
        for i, stage in enumerate(self.down):
            for block in stage:
                h = block(h, told)
                seen.append(h)
            if i < len(self.shrink):
                h = self.shrink[i](h, told)
        for block in self.middle:
            h = block(h, told)
        for i, stage in enumerate(self.up):
            for block in stage:
                h = block(torch.cat([h, seen.pop()], 1), told)
            if i < len(self.grow):
                h = self.grow[i](h, told)
        return self.leave(functional.silu(self.norm(h)))

    def plain(self) -> "UNet":
        """With the weights that PyTorch begins with."""
        for part in self.modules():
            if isinstance(part, nn.Conv2d | nn.Linear):
                part.reset_parameters()
        return self


def twin(ours: un.networks.UNet) -> UNet:
    """The peer with our weights, seen to compute the same."""
    made: UNet = UNet(ours).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    x = np.random.default_rng(0).normal(size=(4, *ours.shape)).astype(np.float32)
    levels = np.linspace(0.1, 0.9, 4, dtype=np.float32)
    with torch.no_grad():
        found = made(channels_first(x), torch.from_numpy(levels)).permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(found, jax.vmap(ours)(jnp.asarray(x), jnp.asarray(levels)), rtol=1e-3, atol=1e-3)
    return made


def channels_first(x: np.ndarray) -> torch.Tensor:
    """Pictures as PyTorch numbers their axes, laid out in memory as they are here."""
    return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
