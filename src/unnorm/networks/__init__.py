"""The function approximators that energies and scores are built from."""

from unnorm.networks.autoencoder import AbstractDecoder as AbstractDecoder
from unnorm.networks.autoencoder import AbstractEncoder as AbstractEncoder
from unnorm.networks.autoencoder import Autoencoder as Autoencoder
from unnorm.networks.autoencoder import BernoulliDecoder as BernoulliDecoder
from unnorm.networks.autoencoder import GaussianDecoder as GaussianDecoder
from unnorm.networks.autoencoder import GaussianEncoder as GaussianEncoder
from unnorm.networks.autoencoder import ImplicitEncoder as ImplicitEncoder
from unnorm.networks.autoencoder import PointEncoder as PointEncoder
from unnorm.networks.autoencoder import ScoredAutoencoder as ScoredAutoencoder
from unnorm.networks.autoencoder import gaussian_autoencoder as gaussian_autoencoder
from unnorm.networks.autoencoder import implicit_autoencoder as implicit_autoencoder
from unnorm.networks.autoencoder import implicit_encoder as implicit_encoder
from unnorm.networks.autoencoder import wasserstein_autoencoder as wasserstein_autoencoder
from unnorm.networks.convolution import Conv as Conv
from unnorm.networks.convolution import convolve as convolve
from unnorm.networks.levelled import LevelledNetwork as LevelledNetwork
from unnorm.networks.levelled import level_features as level_features
from unnorm.networks.levelled import levelled_network as levelled_network
from unnorm.networks.levelled import silent_mlp as silent_mlp
from unnorm.networks.levelled import silent_resnet as silent_resnet
from unnorm.networks.levelled import widened as widened
from unnorm.networks.mlp import MLP as MLP
from unnorm.networks.resnet import ResNet as ResNet
from unnorm.networks.wells import Wells as Wells
