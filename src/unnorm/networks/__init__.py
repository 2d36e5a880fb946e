"""The function approximators that energies and scores are built from."""

from unnorm.networks.mlp import MLP as MLP
from unnorm.networks.resnet import ResNet as ResNet
