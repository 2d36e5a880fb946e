"""Exponential random graphs: terms, walks, estimation with errors, goodness of fit.

>>> import networkx
>>> import unnorm.graphs
>>> fitted = unnorm.graphs.fit(networkx.path_graph(5), "edges")
>>> round(fitted.log_likelihood.value, 2)
-6.73
"""

from unnorm.graphs.bayes import GraphPosterior as GraphPosterior
from unnorm.graphs.bayes import posterior as posterior
from unnorm.graphs.checking import check_term as check_term
from unnorm.graphs.embedded import florentine as florentine
from unnorm.graphs.enumeration import Enumerated as Enumerated
from unnorm.graphs.estimation import fit as fit
from unnorm.graphs.evidence import Evidence as Evidence
from unnorm.graphs.fitted import Coefficient as Coefficient
from unnorm.graphs.fitted import FittedGraph as FittedGraph
from unnorm.graphs.goodness import Feature as Feature
from unnorm.graphs.goodness import Goodness as Goodness
from unnorm.graphs.goodness import goodness as goodness
from unnorm.graphs.model import Model as Model
from unnorm.graphs.network import Network as Network
from unnorm.graphs.network import network_of as network_of
from unnorm.graphs.terms import TERMS as TERMS
from unnorm.graphs.terms.parse import parse as parse
from unnorm.graphs.terms.structure import Own as Own
