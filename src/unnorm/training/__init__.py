"""The one training loop, its checkpoints, and many fits at once."""

from unnorm.parts import trainable as trainable
from unnorm.training.checkpoint import best_model as best_model
from unnorm.training.loop import Fit as Fit
from unnorm.training.loop import fit as fit
from unnorm.training.optimisers import adam as adam
from unnorm.training.optimisers import constant as constant
from unnorm.training.optimisers import cosine as cosine
from unnorm.training.optimisers import muon as muon
from unnorm.training.repeats import fit_repeats as fit_repeats
from unnorm.training.state import RECORDED as RECORDED
