"""How much an estimator's parameters scatter: asymptotic covariances, as code.

Every function returns the covariance of sqrt(N) (theta_hat - theta*), so that estimators compare on equal data.
"""

from unnorm.evaluation.efficiency.contrastive import Covariance as Covariance
from unnorm.evaluation.efficiency.contrastive import cnce_covariance as cnce_covariance
from unnorm.evaluation.efficiency.contrastive import likelihood_covariance as likelihood_covariance
from unnorm.evaluation.efficiency.contrastive import nce_covariance as nce_covariance
from unnorm.evaluation.efficiency.sandwich import Minimum as Minimum
from unnorm.evaluation.efficiency.sandwich import minimised as minimised
from unnorm.evaluation.efficiency.score_matching import ScoreMatchingEfficiency as ScoreMatchingEfficiency
from unnorm.evaluation.efficiency.score_matching import score_matching_efficiency as score_matching_efficiency
from unnorm.evaluation.efficiency.score_matching import sliced_covariance as sliced_covariance
