"""The one table of names: what the command line calls things, and what saved runs are rebuilt from.

Inside the library nothing is looked up by a string. Here each name is tied to its options (validated by pydantic, so a
misspelt or impossible one is a sentence) and to a function that builds the thing from them.
"""

from unnorm.catalogue.diffusion import SOLVERS as SOLVERS
from unnorm.catalogue.entry import Context as Context
from unnorm.catalogue.entry import Entry as Entry
from unnorm.catalogue.entry import Options as Options
from unnorm.catalogue.entry import find as find
from unnorm.catalogue.entry import first_for as first_for
from unnorm.catalogue.entry import read_options as read_options
from unnorm.catalogue.entry import require_works as require_works
from unnorm.catalogue.models import MODELS as MODELS
from unnorm.catalogue.objectives import OBJECTIVES as OBJECTIVES
from unnorm.catalogue.objectives import PYTHON_OBJECTIVES as PYTHON_OBJECTIVES
from unnorm.catalogue.samplers import SAMPLERS as SAMPLERS
from unnorm.data import PROBLEMS
from unnorm.data.named_pictures import NAMED

#: Models that are built in Python: name, summary.
PYTHON_MODELS = (
    ("DKEF", "deep kernel exponential family"),
    ("NICE", "additive coupling flow, exact likelihood"),
    ("LatentPrior", "energy-based prior on an autoencoder's latent space"),
    ("Shifted", "any energy with a learnt constant"),
)
#: What can be named in a listing but is not built from the command line: name, summary.
NOISES = (
    ("Gaussian", "y = x + scale z"),
    ("VarianceExploding", "geometric levels, Song and Ermon 2019"),
    ("VariancePreserving", "alpha^2 + sigma^2 = 1, Song et al. 2021"),
    ("OrnsteinUhlenbeck", "dX = -X dt + sqrt(2) dB"),
    ("SubVariancePreserving", "sigma = 1 - alpha^2, Song et al. 2021"),
    ("Cosine", "alpha a cosine, Nichol and Dhariwal 2021"),
    ("EDM", "levels of Karras et al. 2022"),
    ("StraightPath", "alpha = 1 - t, sigma = t: rectified flow"),
    ("Path", "any alpha(t) and sigma(t)"),
    ("Ladder", "a list of levels, Song and Ermon 2019"),
    ("Chain", "the steps of a DDPM, Ho et al. 2020"),
    ("KDEJump", "a draw of a kernel density estimate, wherever the point was"),
    ("DataJump", "another data point"),
    ("Independent", "draws of any normalised density"),
    ("Jumps", "local moves and global jumps, chosen per point"),
    ("BlendedJumps", "the same as one kernel"),
    ("LeaveOneOut", "a KDE that leaves a row's own kernel out at that row"),
    ("MomentGaussian", "the data's Gaussian, as noise for NCE"),
    ("UnitGaussian", "a standard Gaussian"),
    ("SpanGaussian", "a Gaussian half as wide as the data's span"),
    ("FittedKDE", "a KDE as noise for NCE, leave-one-out at rows"),
    ("FittedMixture", "a Gaussian mixture fitted first"),
)
GENERATORS = (
    ("LangevinCorrector", "Langevin at each level: annealed Langevin"),
    ("GibbsTransition", "Gibbs between noise levels"),
    ("Then", "one transition after another: predictor-corrector"),
    ("SignalToNoise", "Langevin with a step by the size of the score: the corrector of Song et al. 2021"),
    ("EulerMaruyama", "the reverse process by Euler's method"),
    ("ReverseDiffusion", "the reverse process, discretised as the process is"),
    ("Ancestral", "the reverse of a chain, as in DDPM"),
    ("ExponentialIntegrator", "the reverse process with the score held and all else exact"),
    ("FlowEuler", "the probability flow by Euler's method"),
    ("ReverseFlow", "the probability flow, discretised as the process is"),
    ("DDIM", "denoise and go on to the next level, Song, Meng and Ermon 2021"),
    ("Heun", "the probability flow by Heun's method, with churn: EDM"),
    ("DPMSolver", "DPM-Solver++ in several steps, orders 1 to 3"),
    ("UniPC", "predictor and corrector that share a score, orders 1 to 3"),
    ("AdaptiveFlow", "the probability flow in steps that keep to a tolerance"),
    ("MetropolisCorrector", "Langevin accepted or refused: for products and negations of energies"),
    ("Replacing", "a transition after which what is known is put in its place: imputation"),
    ("Repeated", "a corrector so many times"),
)
PYTHON_SAMPLERS = (
    ("DenoisingGibbs", "noise and denoise: full, diagonal, isotropic or learnt covariance, from an energy or a score"),
    ("Ozaki", "Langevin with the curvature of the diagonal; exact on Gaussians at any step"),
    ("SGLD", "stochastic-gradient Langevin for sums over rows"),
)
EXPERIMENTS = (
    ("bits", "zeros and ones: our default, a pairwise network, a Boltzmann machine and a mixture on three tables"),
    ("ed-discrete", "energy discrepancy on spins, bits of the plane and drawings, beside four other objectives"),
    ("demo", "two modes, unequal weights: which objective finds them?"),
    ("cnce-table1", "Yu et al. 2025, Table 1: NCE and CNCE on the 20-D mixture of 40 components"),
    ("cnce-figure1", "Yu et al. 2025, Figure 1: local jumps miss the weights, mixed jumps find them"),
    ("blindness", "which objectives see mixture weights, by distance of the modes"),
    ("ed-density", "energy discrepancy on 2-D densities, and its limits"),
    ("ssm-variance", "Song 2022, Thm 3.3: variance of sliced score matching"),
    ("dkef-uci", "Song 2022, Figs 3.1, B.1: deep kernel exponential families on three tables"),
    ("references", "the density our default begins with, on problems whose own is known"),
    ("tables", "our default against what people use today, on three tables"),
    ("ssm-scaling", "Song 2022, Fig. 3.2: time per step against dimension"),
    ("nice-mnist", "Song 2022, Table 3.1: score matching losses on a flow"),
    ("implicit-vae", "Song 2022, Table 3.2: implicit encoders"),
    ("hosm-table", "Song 2022, Tables 4.1, 4.2: second-order scores"),
    ("gibbs-posterior", "Zhang et al. 2023, Figure 1: posteriors of denoising, and the Gaussians that stand for them"),
    ("gibbs-table1", "Zhang et al. 2023, Table 1: denoising Gibbs by its posterior's covariance, and at many levels"),
    ("logz-race", "log Z of five known targets by six methods: error, stated error, cost"),
    ("langevin-modes", "Song 2022, Fig. 5.3: Langevin gets the weights of far modes wrong, annealing right"),
    ("ozaki", "Song 2022, Figs 4.5, 4.6, Table 4.3: effective draws of Ozaki and Langevin, by step"),
    ("denoising", "Song 2022, 4.5, Figs 4.3, 4.4: how sure a denoised digit is, and what else it could have been"),
    ("mnist-generate", "a diffusion of MNIST: draws, bits per dimension, distances with their floors, guidance"),
    ("faces", "a diffusion of one face: draws, faces between two, faces out of noise with their spread"),
    ("diffusion-modes", "Yu et al. 2025, Fig. 2: energy diffusions with and without the CNCE regulariser"),
    ("digits-likelihood", "Song 2022, Table 9.2: what weighting, levels and dequantisation do to likelihood"),
    ("score-toy", "Song 2022, Figs 5.1, 5.2: where a score of data is wrong, and what noise does to that"),
    ("ncsn-techniques", "Song and Ermon 2020: scales, ratio, parametrisation, steps and averaging, one by one"),
    (
        "solver-table",
        "Song 2022, Table 7.1, Fig. 7.3: predictors and correctors, and every solver's error by evaluations",
    ),
    ("gibbs-mnist", "Zhang et al. 2023, Figs 3-6: denoising Gibbs on digits, by the covariance of its posterior"),
    ("florentine", "three models of marriages in Florence: R's ergm beside ours, and how much is chance"),
    ("schools", "friendships of 1,461 students: R's ergm beside ours, and goodness of fit"),
    ("graph-bayes", "posteriors of random graphs by the exchange algorithm, against all graphs and likelihood"),
    ("ising-exact", "samplers and log Z on the square lattice against Kaufman, Onsager and Yang"),
    ("ising-denoise", "a black-and-white picture with a tenth of its pixels flipped, restored"),
    ("rbm-mnist", "500 hidden units on binarised MNIST: log-likelihood from both sides, and scikit-learn"),
    ("dbm", "two hidden layers against one of as many parameters"),
)


def listing() -> dict[str, list[tuple[str, str]]]:
    """Everything with a name, by kind."""
    return {
        "objectives": [*((e.name, e.summary) for e in OBJECTIVES), *PYTHON_OBJECTIVES],
        "models": [*((e.name, e.summary) for e in MODELS), *PYTHON_MODELS],
        "samplers": [*((e.name, e.summary) for e in SAMPLERS), *PYTHON_SAMPLERS],
        "generators": [*((e.name, e.summary) for e in SOLVERS), *GENERATORS],
        "noises": list(NOISES),
        "data": [
            *((name, (make.__doc__ or "").strip().splitlines()[0]) for name, make in PROBLEMS.items()),
            *((name, known.summary) for name, known in NAMED.items()),
        ],
        "experiments": list(EXPERIMENTS),
    }
